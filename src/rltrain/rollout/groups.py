"""From an engine's result to a group of samples."""

from __future__ import annotations

import numpy as np

from rltrain.types.generation import Completion, GenerateResult
from rltrain.types.sample import FinishReason, Prompt, Sample, SampleGroup, Status


def sample_group(group_id: str, prompt: Prompt, *, result: GenerateResult, n: int, vocab_limit: int) -> SampleGroup:
    """n samples; those that can't be trained on have a status that says why."""
    if result.error is not None:
        samples = tuple(_failed(group_id, index, prompt, result.error) for index in range(n))
    else:
        suspect = _any_suspect(result.completions, vocab_limit)
        samples = tuple(_sample(group_id, prompt, one, vocab_limit, suspect) for one in result.completions)
        assert len(samples) == n, f"group {group_id} has {len(samples)} of {n} samples"
    return SampleGroup(group_id=group_id, prompt=prompt, samples=samples)


def _any_suspect(completions: tuple[Completion, ...], vocab_limit: int) -> bool:
    """Whether an id or a log-prob of any completion needs a look; one pass over all, since hardly ever one does."""
    ids = np.concatenate([np.zeros(1, np.int32), *(completion.token_ids for completion in completions)])
    logprobs = np.concatenate([np.zeros(1, np.float32), *(completion.logprobs for completion in completions)])
    return bool(ids.max() >= vocab_limit) or not bool(np.isfinite(logprobs).all())


def _sample(group_id: str, prompt: Prompt, completion: Completion, vocab_limit: int, suspect: bool) -> Sample:
    status, detail = _status(completion, vocab_limit, suspect)
    return Sample(
        group_id=group_id,
        index=completion.index,
        prompt_ids=prompt.token_ids,
        response_ids=completion.token_ids,
        logprobs=completion.logprobs,
        loss_mask=np.ones(len(completion.token_ids), np.bool_),
        finish_reason=completion.finish_reason,
        status=status,
        detail=detail,
        version_spans=completion.version_spans,
    )


def _status(completion: Completion, vocab_limit: int, suspect: bool) -> tuple[Status, str]:
    if completion.finish_reason is FinishReason.NO_ROOM:
        return Status.NO_ROOM, "the prompt fills the context"
    if completion.finish_reason is FinishReason.ABORT:
        return Status.ABORTED, "the engine aborted it"
    if not suspect:
        return Status.OK, ""
    ids = completion.token_ids
    if len(ids) and int(ids.max()) >= vocab_limit:
        return Status.INVALID_TOKEN, f"id {int(ids.max())} was sampled; the tokenizer has {vocab_limit} ids"
    if not np.isfinite(completion.logprobs).all():
        return Status.GENERATION_FAILED, "the engine's log-probs aren't finite"
    return Status.OK, ""


def _failed(group_id: str, index: int, prompt: Prompt, error: str) -> Sample:
    return Sample(
        group_id=group_id,
        index=index,
        prompt_ids=prompt.token_ids,
        response_ids=np.zeros(0, np.int32),
        logprobs=np.zeros(0, np.float32),
        loss_mask=np.zeros(0, np.bool_),
        finish_reason=FinishReason.ABORT,
        status=Status.GENERATION_FAILED,
        detail=error,
    )
