"""What a rollout needs of an engine and of rewards. Ray and processes stand behind these; tests use plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rltrain.types.generation import GenerateRequest, GenerateResult
from rltrain.types.sample import SampleGroup


class EngineClient(Protocol):
    @property
    def name(self) -> str: ...

    async def generate(self, requests: Sequence[GenerateRequest], *, admit_together: bool) -> list[GenerateResult]:
        """A result for each request in their order; a request's failure is its result."""
        ...


class GroupScorer(Protocol):
    async def score(self, groups: Sequence[SampleGroup]) -> list[SampleGroup]:
        """The groups with rewards; samples that aren't OK pass through."""
        ...
