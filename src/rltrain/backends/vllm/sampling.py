"""Requests and results in vLLM's terms and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.sampling_params import RequestOutputKind, SamplingParams

from rltrain.types.generation import Completion, GenerateResult, Sampling
from rltrain.types.sample import FinishReason, Floats, Ids, VersionSpan

_FINISH_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}


def sampling_params(sampling: Sampling, *, max_tokens: int) -> SamplingParams:
    return SamplingParams(
        n=sampling.n,
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        seed=sampling.seed,
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def scoring_params() -> SamplingParams:
    """One token and the log-probs of the prompt, which vLLM takes from unscaled logits and never from the cache."""
    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def result(request_id: str, output: Any, *, version: int) -> GenerateResult:
    """`version` is stamped where vLLM doesn't keep track of it."""
    failed = [part for part in output.outputs if part.finish_reason not in _FINISH_REASONS]
    if failed:
        return GenerateResult(request_id=request_id, error=f"the engine ended it with {failed[0].finish_reason!r}")
    return GenerateResult(
        request_id=request_id,
        completions=tuple(_completion(part, version) for part in output.outputs),
    )


def no_room(request_id: str, sampling: Sampling) -> GenerateResult:
    """Empty responses to a prompt that fills the context."""
    return GenerateResult(
        request_id=request_id,
        completions=tuple(
            Completion(
                index=index,
                token_ids=np.zeros(0, np.int32),
                logprobs=np.zeros(0, np.float32),
                finish_reason=FinishReason.NO_ROOM,
                version_spans=(),
            )
            for index in range(sampling.n)
        ),
    )


def prompt_logprobs(output: Any, token_ids: Ids) -> Floats:
    """Of `token_ids[1:]`."""
    flat = output.prompt_logprobs
    starts = flat.start_indices[1:]  # the first token has none
    assert [flat.token_ids[start] for start in starts] == token_ids[1:].tolist()
    return np.asarray([flat.logprobs[start] for start in starts], np.float32)


def _completion(part: Any, version: int) -> Completion:
    token_ids = np.asarray(part.token_ids, np.int32)
    return Completion(
        index=part.index,
        token_ids=token_ids,
        logprobs=_sampled_logprobs(part.logprobs, len(token_ids)),
        finish_reason=_FINISH_REASONS[part.finish_reason],
        version_spans=_spans(getattr(part, "weight_versions", None), version, len(token_ids)),
    )


def _sampled_logprobs(flat: Any, count: int) -> Floats:
    """The sampled token comes first at every position; a likelier one may follow."""
    if count == 0:
        return np.zeros(0, np.float32)
    if len(flat.logprobs) == count:
        return np.asarray(flat.logprobs, np.float32)
    return np.asarray(flat.logprobs, np.float32)[np.asarray(flat.start_indices)]


def _spans(found: Any, version: int, count: int) -> tuple[VersionSpan, ...]:
    if count == 0:
        return ()
    if not found:
        return (VersionSpan(version, 0, count),)
    return tuple(VersionSpan(int(span.version), span.start, span.end) for span in found)
