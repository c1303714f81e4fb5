"""Modules of our own in Megatron's layers, for CPU and GPU: RMSNorm and packed causal attention."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from torch import Tensor

from rltrain.backends.megatron.rotary import turned
from rltrain.backends.megatron.shared_rows import spread, taken
from rltrain.types.batch import PackedRows


class RMSNorm(torch.nn.Module):
    """x / rms(x) * weight, statistics in fp32 (Zhang & Sennrich 2019); Megatron's own wants TransformerEngine."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: object) -> None:
        super().__init__()
        self.eps = eps
        device = "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype, device=device))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010 - Megatron reads it there

    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.is_cuda:  # one kernel, which keeps the input alone for the backward pass; on a CPU torch has none
            return F.rms_norm(hidden, self.weight.shape, self.weight, self.eps)
        wide = hidden.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(hidden.dtype)


@dataclass(frozen=True)
class _Stack:
    """Sequences of about the same length as a rectangle [N, L] of row numbers, padded behind their ends."""

    rows_NL: Tensor


@dataclass
class Layout(PackedSeqParams):
    """Where the sequences of a micro-batch lie. Megatron hands it through its layers to the attention.

    `qkv_format` stays None: Megatron then treats the micro-batch as one sequence. It knows of no positions: the
    attention turns queries and keys itself.
    """

    cosines: Tensor | None = None
    sines: Tensor | None = None
    """[T, 1, head_dim]."""
    cu_seqlens: Tensor | None = None
    max_seqlen: int = 0
    stacks: tuple[_Stack, ...] = ()
    rows_E: Tensor | None = None
    """For the kernel: row of each entry, where sequences share rows."""
    place_T: Tensor | None = None
    """Where each row's result lies among the entries', or in the stacks' results behind one another."""
    extra_X: Tensor | None = None
    """For the kernel: the entries that aren't their row's own of `place_T`."""


def make_layout(rows: PackedRows, *, device: torch.device, kernel: bool) -> Layout:
    """Without positions. `kernel` says that a variable-length kernel is used; else sequences are stacked by length.

    A shared row is computed with each of its sequences, to the same result; any of them is taken.
    """
    cu_seqlens, rows_E = rows.cu_seqlens, rows.rows_E
    lengths = np.diff(cu_seqlens).astype(np.int64)
    place_T = np.zeros(len(rows.tokens_T), np.int64)
    if kernel:
        layout = Layout(cu_seqlens=torch.from_numpy(cu_seqlens).to(device), max_seqlen=int(lengths.max()))
        if len(rows_E) > len(place_T) or (rows_E != np.arange(len(rows_E))).any():
            place_T[rows_E] = np.arange(len(rows_E))
            extra_X = np.setdiff1d(np.arange(len(rows_E)), place_T)
            layout.rows_E, layout.place_T = torch.from_numpy(rows_E).to(device), torch.from_numpy(place_T).to(device)
            layout.extra_X = torch.from_numpy(extra_X).to(device)
        return layout
    stacks: list[_Stack] = []
    start = 0
    rounded = _rounded(lengths)
    for width in np.unique(rounded):
        members = np.flatnonzero(rounded == width)
        column_L = np.arange(width)
        ends_N = cu_seqlens[members + 1].astype(np.int64)[:, None]
        rows_NL = rows_E[np.minimum(cu_seqlens[members].astype(np.int64)[:, None] + column_L, ends_N - 1)]
        real_NL = column_L < lengths[members][:, None]
        places_NL = start + np.arange(rows_NL.size).reshape(rows_NL.shape)
        place_T[rows_NL[real_NL]] = places_NL[real_NL]
        start += rows_NL.size
        stacks.append(_Stack(torch.from_numpy(rows_NL).to(device)))
    return Layout(stacks=tuple(stacks), place_T=torch.from_numpy(place_T).to(device))


def _rounded(lengths: np.ndarray) -> np.ndarray:
    """Up to an eighth more, so that few different ones remain."""
    step = 2 ** np.maximum(np.floor(np.log2(np.maximum(lengths, 1))).astype(np.int64) - 3, 0)
    return -(-lengths // step) * step


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch has a variable-length attention kernel for this device and type (2.10 and later)."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return False
    return hasattr(varlen, "varlen_attn")


class VarlenAttention(MegatronModule):
    """Causal attention within each of the layout's sequences, with grouped queries."""

    def __init__(
        self, config: Any, layer_number: int, attn_mask_type: Any, attention_type: str, **options: object
    ) -> None:
        super().__init__(config=config)
        assert attention_type == "self"
        scale = options.get("softmax_scale")
        self.scale: float = scale if isinstance(scale, float) else config.kv_channels**-0.5

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        packed_seq_params: Layout | None = None,
        **_: object,
    ) -> Tensor:
        """query [T, 1, heads, d], key and value [T, 1, groups, d] -> [T, 1, heads * d]."""
        assert packed_seq_params is not None
        layout = packed_seq_params
        assert layout.cosines is not None and layout.sines is not None
        query, key = turned(query.squeeze(1), key.squeeze(1), layout.cosines, layout.sines)
        value = value.squeeze(1)
        attend = _by_kernel if layout.cu_seqlens is not None else _by_stacks
        return attend(query, key, value, layout=layout, scale=self.scale).reshape(query.size(0), 1, -1)


def _by_kernel(query: Tensor, key: Tensor, value: Tensor, *, layout: Layout, scale: float) -> Tensor:
    attend, known = _varlen()
    options: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    if "scale" in known:
        options["scale"] = scale
    else:
        query = query * (scale * query.size(-1) ** 0.5)
    if "enable_gqa" in known:
        options["enable_gqa"] = query.size(1) != key.size(1)
    starts, longest = layout.cu_seqlens, layout.max_seqlen
    if layout.rows_E is None:
        return attend(query, key, value, starts, starts, longest, longest, **options)
    # Only the row's own entry has its result taken, so only that one's query gets a gradient.
    query = spread(query, layout.rows_E, layout.place_T, None)
    key, value = (spread(tensor, layout.rows_E, layout.place_T, layout.extra_X) for tensor in (key, value))
    return taken(attend(query, key, value, starts, starts, longest, longest, **options), layout.place_T)


@functools.cache
def _varlen() -> tuple[Any, frozenset[str]]:
    """torch's kernel and the names of its arguments, which differ between releases."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn, frozenset(inspect.signature(varlen_attn).parameters)


def _by_stacks(query: Tensor, key: Tensor, value: Tensor, *, layout: Layout, scale: float) -> Tensor:
    """A call for each length; what is padded lies behind every real row, so a causal mask hides it."""
    heads, width = query.size(1), query.size(2)
    repeats = heads // key.size(1)
    results: list[Tensor] = []
    for stack in layout.stacks:
        rows = stack.rows_NL.reshape(-1)
        q, k, v = (
            tensor.index_select(0, rows).view(*stack.rows_NL.shape, -1, width).transpose(1, 2)
            for tensor in (query, key, value)
        )
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        results.append(found.transpose(1, 2).reshape(-1, heads, width))
    assert layout.place_T is not None
    return torch.cat(results).index_select(0, layout.place_T)


def block_submodules(config: Any) -> TransformerBlockSubmodules:
    """Megatron's local layers with our norm and attention in them."""
    spec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    layer: Any = spec.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = RMSNorm
    attention = layer.self_attention.submodules
    attention.core_attention = VarlenAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    norm: Any = RMSNorm  # Megatron's annotation wants an instance, its builder a class
    return TransformerBlockSubmodules(layer_specs=[spec] * get_num_layers_to_build(config), layer_norm=norm)
