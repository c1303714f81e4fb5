"""Modules of our own in Megatron's layers, for CPU and GPU: RMSNorm and packed causal attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from torch import Tensor

from rltrain.backends.megatron.context_parallel import ContextAttention
from rltrain.backends.megatron.rotary import Rotation, turned
from rltrain.backends.megatron.shared_rows import spread, taken
from rltrain.backends.megatron.varlen_kernel import attend
from rltrain.types.batch import PackedRows


class RMSNorm(torch.nn.Module):
    """x / rms(x) * weight (or 1 + weight), statistics in fp32 (Zhang & Sennrich 2019).

    Megatron's own wants TransformerEngine.
    """

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: object) -> None:
        super().__init__()
        self.eps = eps
        self.zero_centred: bool = config.layernorm_zero_centered_gamma
        device = "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
        start = 0.0 if self.zero_centred else 1.0
        self.weight = torch.nn.Parameter(torch.full((hidden_size,), start, dtype=config.params_dtype, device=device))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010 - Megatron reads it there

    def forward(self, hidden: Tensor) -> Tensor:
        if self.zero_centred:  # Gemma's, which multiplies before it rounds
            normed = F.rms_norm(hidden.float(), self.weight.shape, 1 + self.weight.float(), self.eps)
            return normed.to(hidden.dtype)
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

    rotations: tuple[Rotation, ...] = ()
    cu_seqlens: Tensor | None = None
    max_seqlen: int = 0
    stacks: tuple[_Stack, ...] = ()
    rows_E: Tensor | None = None
    """For the kernel: row of each entry, where sequences share rows."""
    place_T: Tensor | None = None
    """Where each row's result lies among the entries', or in the stacks' results behind one another."""
    extra_X: Tensor | None = None
    """For the kernel: the entries that aren't their row's own of `place_T`."""
    context: ContextAttention | None = None
    """In place of all of the above where sequences are split over ranks."""


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


class VarlenAttention(MegatronModule):
    """Causal attention within each of the layout's sequences, with grouped queries."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        *,
        scale: float | None = None,
        window: int | None = None,
        rotation: int | None = 0,
        **_: object,
    ) -> None:
        """`window`: tokens that each one sees, itself included. `rotation`: which of the layout's, or none."""
        super().__init__(config=config)
        assert attention_type == "self"
        self.scale: float = config.kv_channels**-0.5 if scale is None else scale
        self.window = window
        self.rotation = rotation

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
        query, key, value = query.squeeze(1), key.squeeze(1), value.squeeze(1)
        if self.rotation is not None:
            query, key = turned(query, key, layout.rotations[self.rotation])
        if layout.context is not None:
            found = layout.context(query, key, value, scale=self.scale, window=self.window)
        elif layout.cu_seqlens is not None:
            found = _by_kernel(query, key, value, layout=layout, scale=self.scale, window=self.window)
        else:
            found = _by_stacks(query, key, value, layout=layout, scale=self.scale, window=self.window)
        return found.reshape(query.size(0), 1, -1)


def _by_kernel(
    query: Tensor, key: Tensor, value: Tensor, *, layout: Layout, scale: float, window: int | None
) -> Tensor:
    assert layout.cu_seqlens is not None
    options: dict[str, Any] = {
        "starts_q": layout.cu_seqlens,
        "starts_k": layout.cu_seqlens,
        "longest_q": layout.max_seqlen,
        "longest_k": layout.max_seqlen,
        "scale": scale,
        "window": window,
    }
    if layout.rows_E is None:
        return attend(query, key, value, **options)
    # Only the row's own entry has its result taken, so only that one's query gets a gradient.
    query = spread(query, layout.rows_E, layout.place_T, None)
    key, value = (spread(tensor, layout.rows_E, layout.place_T, layout.extra_X) for tensor in (key, value))
    return taken(attend(query, key, value, **options), layout.place_T)


def window_mask(length: int, window: int, device: torch.device) -> Tensor:
    """[L, L]: whether a token (row) sees another one (column)."""
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)
    return (distance >= 0) & (distance < window)


def _by_stacks(
    query: Tensor, key: Tensor, value: Tensor, *, layout: Layout, scale: float, window: int | None
) -> Tensor:
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
        if window is None or window >= q.size(2):
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            seen = window_mask(q.size(2), window, q.device)
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
        results.append(found.transpose(1, 2).reshape(-1, heads, width))
    assert layout.place_T is not None
    return torch.cat(results).index_select(0, layout.place_T)
