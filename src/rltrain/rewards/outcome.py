"""What scoring a response gave: a number with its parts, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rltrain.types.sample import Status


@dataclass(frozen=True, slots=True)
class Score:
    value: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further numbers that a custom function returned beside its reward."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No reward: the sample is masked, never scored 0."""

    status: Status
    detail: str
