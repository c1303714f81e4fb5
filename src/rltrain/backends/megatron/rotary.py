"""Rotary angles by position (Su et al. 2021), with the scalings that Llama models use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rltrain.config.errors import UserError
from rltrain.types.model_spec import ModelSpec


class Rotary(torch.nn.Module):
    """Angles for any positions, since sequences lie behind one another."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        super().__init__()
        # Not a buffer: it stays fp32 when the model is cast.
        self._inverse = inverse_frequencies(spec).to(device)

    def forward(self, positions_T: Tensor) -> Tensor:
        """[T] -> [T, 1, 1, head_dim]."""
        angles = positions_T.float()[:, None] * self._inverse
        return torch.cat([angles, angles], -1)[:, None, None]


def inverse_frequencies(spec: ModelSpec) -> Tensor:
    """[head_dim / 2], fp32. Raises UserError for a scaling that isn't known."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    inverse = 1.0 / spec.rope_theta**exponents
    scaling = spec.rope_scaling
    if scaling is None:
        return inverse
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return inverse / float(scaling["factor"])
    if kind == "llama3":
        low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
        turns = float(scaling["original_max_position_embeddings"]) * inverse / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)  # 1 where the wave is short and stays as it is
        return (1 - share) * inverse / float(scaling["factor"]) + share * inverse
    raise UserError.single(
        "actor.model.path",
        f"rotary scaling {kind!r} is not supported",
        value=spec.path,
        hint="supported: default, linear, llama3",
    )
