"""What goes to an engine and what comes back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from rltrain.types.sample import FinishReason, Floats, Ids, VersionSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """One request's sampling, resolved: all stop ids are in, seeds are set. Fields as in `rollout:`."""

    n: int
    max_tokens: int
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    """Seed of the request; the engine gives child i `seed + i`, so seeds of groups lie n apart."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerateRequest:
    request_id: str
    prompt_ids: Ids
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """One sampled response of a request."""

    index: int
    token_ids: Ids
    logprobs: Floats
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerateResult:
    """The completions of a request in the order of their index, or the error that kept them away."""

    request_id: str
    completions: tuple[Completion, ...] = ()
    error: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Crosses processes as two arrays instead of two for each completion, which is several times as fast."""
        lengths = [len(completion.token_ids) for completion in self.completions]
        ids = [np.zeros(0, np.int32), *(completion.token_ids for completion in self.completions)]
        logprobs = [np.zeros(0, np.float32), *(completion.logprobs for completion in self.completions)]
        rest = [
            (c.index, c.finish_reason.value, tuple((span.version, span.start, span.end) for span in c.version_spans))
            for c in self.completions
        ]
        return _restored, (self.request_id, lengths, np.concatenate(ids), np.concatenate(logprobs), rest, self.error)


def _restored(
    request_id: str,
    lengths: list[int],
    ids: Ids,
    logprobs: Floats,
    rest: list[tuple[int, str, tuple[tuple[int, int, int], ...]]],
    error: str | None,
) -> GenerateResult:
    ends = list(itertools.accumulate(lengths))
    completions = tuple(
        Completion(
            index=index,
            token_ids=ids[end - length : end],
            logprobs=logprobs[end - length : end],
            finish_reason=FinishReason(reason),
            version_spans=tuple(VersionSpan(*span) for span in spans),
        )
        for (index, reason, spans), length, end in zip(rest, lengths, ends, strict=True)
    )
    return GenerateResult(request_id=request_id, completions=completions, error=error)
