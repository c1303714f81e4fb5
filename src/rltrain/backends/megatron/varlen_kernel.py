"""torch's attention kernel for sequences of different lengths behind one another (2.10 and later, GPU)."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import Tensor


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch has it for this device and type."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return False
    return hasattr(varlen, "varlen_attn")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    starts_q: Tensor,
    starts_k: Tensor,
    longest_q: int,
    longest_k: int,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """query [Q, heads, d], key and value [K, groups, d] -> [Q, heads, d].

    Sequence i's queries are its last positions: the last one sees all of its keys, each one before it one less; with a
    `window`, the last so many of these, its own included.
    `starts_q` and `starts_k` [sequences + 1] int32.
    """
    kernel, known = _varlen()
    behind = -1 if window is None else window - 1
    options: dict[str, Any] = {"window_size": (behind, 0)} if "window_size" in known else {"is_causal": True}
    assert window is None or "window_size" in known, "this release of torch has no attention with a window"
    if "scale" in known:
        options["scale"] = scale
    else:
        query = query * (scale * query.size(-1) ** 0.5)
    if "enable_gqa" in known:
        options["enable_gqa"] = query.size(1) != key.size(1)
    return kernel(query, key, value, starts_q, starts_k, longest_q, longest_k, **options)


@functools.cache
def _varlen() -> tuple[Any, frozenset[str]]:
    """The kernel and the names of its arguments, which differ between releases."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn, frozenset(inspect.signature(varlen_attn).parameters)
