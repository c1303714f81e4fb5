"""What a weight sync needs of the trainer and of an engine. Ray stands behind these; tests use plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import SyncPlan


@dataclass(frozen=True, slots=True)
class WeightsOffer:
    """How the trainer's weights will come: the buckets, and the slots that they take turns in."""

    plan: SyncPlan
    slots: tuple[str, ...]


class TrainerSide(Protocol):
    """All ranks of the actor; the first one writes."""

    async def offer_weights(self) -> WeightsOffer:
        """Makes the slots, once."""
        ...

    async def write_bucket(self, index: int, *, verify: bool) -> int | None:
        """Fills the bucket's slot, in the order of their numbers; the bytes' checksum if `verify`."""
        ...

    async def score(self, token_ids: Ids) -> Floats:
        """Log-probs of `token_ids[1:]` at temperature 1."""
        ...


class EngineSide(Protocol):
    @property
    def name(self) -> str: ...

    async def attach_weights(self, plan: SyncPlan, slots: Sequence[str]) -> None: ...

    async def load_bucket(self, index: int, *, version: int, verify: bool) -> int | None:
        """Loads a bucket from its slot: the first pauses generation, the last names the weights and resumes."""
        ...

    async def refuse(self, reason: str) -> None:
        """Generates nothing until a sync went through."""
        ...

    async def score(self, token_ids: Ids) -> Floats: ...
