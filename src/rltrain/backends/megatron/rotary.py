"""Rotary positions (Su et al. 2021), with the scalings that Llama models use."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from rltrain.types.model_spec import ModelSpec


class Rotary(torch.nn.Module):
    """Turns for any positions, since sequences lie behind one another; computed once for all layers."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        super().__init__()
        # Not a buffer: it stays fp32 when the model is cast.
        self._inverse = inverse_frequencies(spec).to(device)

    def forward(self, positions_T: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[T] -> cosines and sines [T, 1, head_dim], computed in fp32."""
        angles = positions_T.float()[:, None] * self._inverse
        whole = torch.cat([angles, angles], -1)[:, None]
        return whole.cos().to(dtype), whole.sin().to(dtype)


def turned(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Query and key [T, heads, head_dim], turned by their positions; one kernel forward and one backward on a GPU."""
    turn = _compiled() if query.is_cuda else _turn_both
    return turn(query, key, cosines, sines)


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_turn_both)


def _turn_both(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    return _turn(query, cosines, sines), _turn(key, cosines, sines)


def _turn(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * cosines + torch.cat([-second, first], -1) * sines


def inverse_frequencies(spec: ModelSpec) -> Tensor:
    """[head_dim / 2], fp32, under a scaling that `ModelSpec` lets through."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    inverse = 1.0 / spec.rope_theta**exponents
    scaling = spec.rope_scaling
    if scaling is None:
        return inverse
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return inverse / float(scaling["factor"])
    assert kind == "llama3", kind
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * inverse / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)  # 1 where the wave is short and stays as it is
    return (1 - share) * inverse / float(scaling["factor"]) + share * inverse
