"""Engines and rewards of the rollout tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rltrain.types.generation import Completion, GenerateRequest, GenerateResult
from rltrain.types.sample import FinishReason, Prompt, Sample, SampleGroup, Status, VersionSpan


@dataclass
class FakeEngine:
    """Answers each request with n responses: child i of prompt p is `p[0] + i`, as often as `max_tokens` allows."""

    name: str = "engine_0"
    delay_s: float = 0.0
    failing: frozenset[int] = frozenset()
    """First prompt ids of the requests that fail."""
    calls: list[list[GenerateRequest]] = field(default_factory=list[list[GenerateRequest]])
    admitted_together: list[bool] = field(default_factory=list[bool])

    async def generate(self, requests: Sequence[GenerateRequest], *, admit_together: bool) -> list[GenerateResult]:
        self.calls.append(list(requests))
        self.admitted_together.append(admit_together)
        await asyncio.sleep(self.delay_s)
        return [self._result(request) for request in requests]

    def _result(self, request: GenerateRequest) -> GenerateResult:
        first = int(request.prompt_ids[0])
        if first in self.failing:
            return GenerateResult(request_id=request.request_id, error="prompt 7 is too long")
        sampling = request.sampling
        completions = tuple(completion(index, [first + index] * sampling.max_tokens) for index in range(sampling.n))
        return GenerateResult(request_id=request.request_id, completions=completions)


@dataclass
class FakeScorer:
    """Rewards the first response id; counts what it was given."""

    delay_s: float = 0.0
    calls: list[list[str]] = field(default_factory=list[list[str]])

    async def score(self, groups: Sequence[SampleGroup]) -> list[SampleGroup]:
        self.calls.append([group.group_id for group in groups])
        await asyncio.sleep(self.delay_s)
        return [replace(group, samples=tuple(map(self._scored, group.samples))) for group in groups]

    def _scored(self, sample: Sample) -> Sample:
        if sample.status is not Status.OK:
            return sample
        return replace(sample, reward=float(sample.response_ids[0]))


def completion(index: int, ids: Sequence[int], reason: FinishReason = FinishReason.LENGTH) -> Completion:
    return Completion(
        index=index,
        token_ids=np.asarray(ids, np.int32),
        logprobs=np.full(len(ids), -1.0, np.float32),
        finish_reason=reason,
        version_spans=(VersionSpan(1, 0, len(ids)),),
    )


def make_prompt(*ids: int) -> Prompt:
    return Prompt(id=f"rows:{ids[0]}", token_ids=np.asarray(ids, np.int32), content="text", label="x")
