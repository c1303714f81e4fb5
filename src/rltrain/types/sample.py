"""What one prompt and one response are, from the data set to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]


class FinishReason(StrEnum):
    STOP = "stop"
    """An EOS id, a stop id or a stop text."""
    LENGTH = "length"
    """`max_tokens` or the context's end: the response is truncated."""
    ABORT = "abort"
    NO_ROOM = "no_room"
    """The prompt fills the context; nothing was generated."""


class Status(StrEnum):
    """Whether a sample may be trained on; all but OK are masked from the loss and from their group's baseline."""

    OK = "ok"
    GENERATION_FAILED = "generation_failed"
    ABORTED = "aborted"
    NO_ROOM = "no_room"
    INVALID_TOKEN = "invalid_token"
    """The engine sampled an id that the tokenizer doesn't have."""
    REWARD_TIMEOUT = "reward_timeout"
    REWARD_ERROR = "reward_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """A row of a prompt set, rendered and tokenised: `token_ids` are the very ids the engine gets."""

    id: str
    """`<file stem>:<row number>`, unique within the set."""
    token_ids: Ids
    content: str | tuple[Message, ...]
    """The prompt as the row had it, for rewards and displays."""
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens [start, end) of a response were sampled under weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One response. Sampled ids travel as they are; nothing is decoded and encoded again."""

    group_id: str
    index: int
    """Place within the group, 0 to n - 1."""
    prompt_ids: Ids
    response_ids: Ids
    logprobs: Floats
    """Log-probability of each response id under the distribution it was drawn from."""
    loss_mask: Mask
    """True where the policy sampled the token (its own EOS included)."""
    finish_reason: FinishReason
    status: Status = Status.OK
    detail: str = ""
    """Why the status isn't OK, for people."""
    version_spans: tuple[VersionSpan, ...] = ()
    reward: float | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        lengths = {len(self.response_ids), len(self.logprobs), len(self.loss_mask)}
        if len(lengths) != 1:
            raise ValueError(
                f"sample {self.group_id}/{self.index}: {len(self.response_ids)} response ids, "
                f"{len(self.logprobs)} log-probs, {len(self.loss_mask)} mask entries; they must be as many"
            )

    @property
    def truncated(self) -> bool:
        return self.finish_reason in (FinishReason.LENGTH, FinishReason.NO_ROOM)

    @property
    def trainable(self) -> bool:
        """Whether it takes part in the baseline and the loss."""
        return self.status is Status.OK and self.reward is not None

    def failed(self, status: Status, detail: str) -> Sample:
        return replace(self, status=status, detail=detail, reward=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleGroup:
    """The n responses to one draw of a prompt. Failures travel as samples with a status."""

    group_id: str
    """`<step>/<place in the step>`: a prompt drawn twice in a step makes two groups."""
    prompt: Prompt
    samples: tuple[Sample, ...]
