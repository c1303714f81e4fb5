"""Small sample groups for these tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from rltrain.types.sample import FinishReason, Message, Prompt, Sample, SampleGroup, Status, VersionSpan

MakeSample = Callable[..., Sample]
MakeGroup = Callable[..., SampleGroup]


@pytest.fixture
def make_sample() -> MakeSample:
    return _sample


@pytest.fixture
def make_group() -> MakeGroup:
    return _group


def _sample(
    response_ids: Sequence[int] = (5, 2),
    *,
    index: int = 0,
    logprob: float = -1.0,
    mask: Sequence[int] | None = None,
    reward: float | None = 1.0,
    parts: Mapping[str, float] | None = None,
    status: Status = Status.OK,
    finish_reason: FinishReason = FinishReason.STOP,
    version: int = 0,
) -> Sample:
    length = len(response_ids)
    return Sample(
        group_id="1/0",
        index=index,
        prompt_ids=np.array([3, 4], np.int32),
        response_ids=np.array(response_ids, np.int32),
        logprobs=np.full(length, logprob, np.float32),
        loss_mask=np.array([1] * length if mask is None else mask, np.bool_),
        finish_reason=finish_reason,
        status=status,
        detail="" if status is Status.OK else "why",
        version_spans=(VersionSpan(version, 0, length),) if length else (),
        reward=reward,
        reward_parts=parts or {},
    )


def _group(*samples: Sample, content: str | tuple[Message, ...] = "7=", label: str | None = "7777") -> SampleGroup:
    prompt = Prompt(id="rep:1", token_ids=np.array([3, 4], np.int32), content=content, label=label)
    return SampleGroup(group_id="1/0", prompt=prompt, samples=samples)
