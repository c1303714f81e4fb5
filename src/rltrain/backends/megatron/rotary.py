"""Rotary positions (Su et al. 2021): whole heads or their first part, halves or neighbours, and the usual scalings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rltrain.types.model_spec import ModelSpec


@dataclass(frozen=True)
class Rotation:
    """What turns the first numbers of each head by its row's position."""

    cosines: Tensor
    sines: Tensor
    """[T, 1, rotary dim]."""
    interleaved: bool


class Rotary(torch.nn.Module):
    """Turns for any positions, since sequences lie behind one another; computed once for all layers."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        super().__init__()
        dim = spec.rotary_dim or spec.head_dim
        inverse = [inverse_frequencies(spec)]
        if spec.window_rope_theta is not None:
            inverse.append(_plain(dim, spec.window_rope_theta))
        # Not buffers: they stay fp32 when the model is cast.
        self._inverse = [one.to(device) for one in inverse]
        self._interleaved = spec.rotary_interleaved
        self._length = attention_factor(spec.rope_scaling)

    def forward(self, positions_T: Tensor, *, dtype: torch.dtype) -> tuple[Rotation, ...]:
        """Computed in fp32. Layers with a window have the second where there is one."""
        lengths = (self._length, 1.0)
        return tuple(
            self._rotation(positions_T.float()[:, None] * inverse, length, dtype)
            for inverse, length in zip(self._inverse, lengths, strict=False)
        )

    def _rotation(self, angles: Tensor, length: float, dtype: torch.dtype) -> Rotation:
        whole = angles.repeat_interleave(2, -1) if self._interleaved else torch.cat([angles, angles], -1)
        cosines, sines = whole[:, None].cos(), whole[:, None].sin()
        if length != 1.0:
            cosines, sines = cosines * length, sines * length
        return Rotation(cosines.to(dtype), sines.to(dtype), self._interleaved)


def turned(query: Tensor, key: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
    """Query and key [T, heads, head_dim], turned by their positions; one kernel forward and one backward on a GPU."""
    turn = _compiled() if query.is_cuda else _turn_both
    return turn(query, key, rotation.cosines, rotation.sines, rotation.interleaved)


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_turn_both)


def _turn_both(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    return _turn(query, cosines, sines, interleaved), _turn(key, cosines, sines, interleaved)


def _turn(heads: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    dim = cosines.size(-1)
    part = heads if dim == heads.size(-1) else heads[..., :dim]
    if interleaved:
        across = torch.stack([-part[..., 1::2], part[..., 0::2]], -1).flatten(-2)
    else:
        first, second = part.chunk(2, -1)
        across = torch.cat([-second, first], -1)
    found = part * cosines + across * sines
    return found if part is heads else torch.cat([found, heads[..., dim:]], -1)


def inverse_frequencies(spec: ModelSpec) -> Tensor:
    """[rotary dim / 2], fp32, under a scaling that `ModelSpec` lets through."""
    inverse = _plain(spec.rotary_dim or spec.head_dim, spec.rope_theta)
    scaling = spec.rope_scaling
    if scaling is None:
        return inverse
    kind, factor = scaling.get("rope_type", scaling.get("type")), float(scaling["factor"])
    if kind == "linear":
        return inverse / factor
    share = _llama3_share(inverse, scaling) if kind == "llama3" else _yarn_share(inverse, spec.rope_theta, scaling)
    return (1 - share) * inverse / factor + share * inverse


def _plain(dim: int, theta: float) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim)


def _llama3_share(inverse: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """1 where the wave is short and stays as it is."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * inverse / (2 * math.pi)
    return ((turns - low) / (high - low)).clamp(0, 1)


def _yarn_share(inverse: Tensor, theta: float, scaling: Mapping[str, Any]) -> Tensor:
    """The same in YaRN (Peng et al. 2023): a ramp over the numbers of the frequencies, not over the waves."""
    dim, original = 2 * len(inverse), float(scaling["original_max_position_embeddings"])

    def number(turns: float) -> float:
        """Of the frequency that turns so often within the original length."""
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    start, end = number(float(scaling.get("beta_fast") or 32)), number(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        start, end = math.floor(start), math.ceil(end)
    start, end = max(start, 0), min(end, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - start) / max(end - start, 0.001)
    return 1 - ramp.clamp(0, 1)


def attention_factor(scaling: Mapping[str, Any] | None) -> float:
    """Length of turned queries and keys; YaRN's alone isn't 1."""
    if scaling is None or scaling.get("rope_type", scaling.get("type")) != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    share, share_of_all = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if share and share_of_all:
        return _length(scaling["factor"], share) / _length(scaling["factor"], share_of_all)
    return _length(scaling["factor"], 1.0)


def _length(factor: float, share: float) -> float:
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0
