from __future__ import annotations

import numpy as np
import pytest

from rltrain.rollout.groups import sample_group
from rltrain.types.generation import Completion, GenerateResult
from rltrain.types.sample import FinishReason, SampleGroup, Status
from tests.unit.rollout.conftest import completion, make_prompt


def group_of(*completions: Completion, error: str | None = None, n: int = 1) -> SampleGroup:
    result = GenerateResult(request_id="r", completions=completions, error=error)
    return sample_group("3/1", make_prompt(5, 6), result=result, n=n, vocab_limit=100)


def test_sampled_ids_are_kept_as_they_are_and_all_count_for_the_loss() -> None:
    (sample,) = group_of(completion(0, [9, 99, 2], FinishReason.STOP)).samples
    assert sample.status is Status.OK
    assert sample.response_ids.tolist() == [9, 99, 2]
    assert sample.loss_mask.all()
    assert sample.prompt_ids.tolist() == [5, 6]
    assert not sample.truncated


def test_tok_09_an_id_without_a_token_makes_the_sample_invalid() -> None:
    (sample,) = group_of(completion(0, [9, 100])).samples
    assert sample.status is Status.INVALID_TOKEN
    assert sample.detail == "id 100 was sampled; the tokenizer has 100 ids"
    assert not sample.trainable


def test_rol_05_a_prompt_that_fills_the_context_gives_truncated_samples_that_arent_trained_on() -> None:
    (sample,) = group_of(completion(0, [], FinishReason.NO_ROOM)).samples
    assert sample.status is Status.NO_ROOM
    assert sample.truncated


def test_rol_08_an_empty_response_is_legal() -> None:
    (sample,) = group_of(completion(0, [], FinishReason.STOP)).samples
    assert sample.status is Status.OK
    assert len(sample.response_ids) == 0


def test_an_aborted_response_has_a_status() -> None:
    (sample,) = group_of(completion(0, [1], FinishReason.ABORT)).samples
    assert sample.status is Status.ABORTED


def test_a_failed_request_gives_n_failed_samples() -> None:
    group = group_of(error="ValueError: no", n=3)
    assert [(sample.index, sample.status, sample.detail) for sample in group.samples] == [
        (index, Status.GENERATION_FAILED, "ValueError: no") for index in range(3)
    ]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_log_probs_that_arent_finite_fail_the_sample(value: float) -> None:
    good = completion(0, [1, 2])
    bad = Completion(
        index=0,
        token_ids=good.token_ids,
        logprobs=np.asarray([-1.0, value], np.float32),
        finish_reason=FinishReason.LENGTH,
        version_spans=(),
    )
    (sample,) = group_of(bad).samples
    assert sample.status is Status.GENERATION_FAILED
