"""What goes to an engine and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

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
