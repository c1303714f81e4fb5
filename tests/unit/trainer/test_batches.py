import math

import numpy as np
import pytest

from rltrain.config.algorithm import GroupMean, ReferenceKL
from rltrain.trainer.batches import build_batch, with_advantages
from rltrain.trainer.penalty import kl_penalties
from rltrain.types.batch import Ragged
from rltrain.types.errors import RunError
from rltrain.types.sample import FinishReason, Prompt, Sample, SampleGroup, Status

PLAIN = GroupMean(scale_by_std=False)


def sample(
    index: int, response: list[int], reward: float | None, *, status: Status = Status.OK, logprob: float = -1.0
) -> Sample:
    return Sample(
        group_id="1/0",
        index=index,
        prompt_ids=np.array([7, 8], np.int32),
        response_ids=np.array(response, np.int32),
        logprobs=np.full(len(response), logprob, np.float32),
        loss_mask=np.ones(len(response), np.bool_),
        finish_reason=FinishReason.STOP,
        status=status,
        reward=reward,
    )


def group(*samples: Sample) -> SampleGroup:
    prompt = Prompt(id="p:1", token_ids=np.array([7, 8], np.int32), content="x")
    return SampleGroup(group_id="1/0", prompt=prompt, samples=samples)


def test_every_token_of_a_response_has_its_groups_advantage():
    groups = [group(sample(0, [1, 2], 1.0), sample(1, [3], 0.0))]
    batch = with_advantages(build_batch(groups, step=1, version=1), groups, config=PLAIN)
    assert batch.advantages[0].tolist() == [0.5, 0.5]
    assert batch.advantages[1].tolist() == [-0.5]
    assert batch.group_B.tolist() == [0, 0]


def test_a_failed_sample_is_masked_from_the_loss_and_from_the_baseline():
    groups = [group(sample(0, [1], 1.0), sample(1, [2], None, status=Status.REWARD_TIMEOUT), sample(2, [3], 0.0))]
    batch = with_advantages(build_batch(groups, step=1, version=1), groups, config=PLAIN)
    assert batch.loss_mask.values.tolist() == [True, False, True]
    assert batch.advantages.values.tolist() == [0.5, 0.0, -0.5]


def test_rol_08_an_empty_response_is_legal():
    groups = [group(sample(0, [], 0.0), sample(1, [5, 2], 1.0))]
    batch = with_advantages(build_batch(groups, step=1, version=1), groups, config=PLAIN)
    assert batch.response_ids.lengths.tolist() == [0, 2]
    assert batch.advantages.values.tolist() == [0.5, 0.5]


def test_lgp_05_a_bad_logprob_of_a_trainable_token_names_the_sample():
    with pytest.raises(RunError, match="1/0/1"):
        build_batch([group(sample(0, [1], 1.0), sample(1, [2], 0.0, logprob=math.nan))], step=1, version=1)


def test_a_bad_logprob_of_a_failed_sample_does_not_matter():
    failed = sample(1, [2], None, status=Status.INVALID_TOKEN, logprob=math.nan)
    assert len(build_batch([group(sample(0, [1], 1.0), failed)], step=1, version=1)) == 2


def test_kl_in_the_reward_is_taken_off_before_the_baseline():
    groups = [group(sample(0, [1, 2], 1.0), sample(1, [3], 1.0))]
    batch = with_advantages(build_batch(groups, step=1, version=1), groups, config=PLAIN, penalties_B=[0.4, 0.0])
    assert batch.advantages.values.tolist() == pytest.approx([-0.2, -0.2, 0.2])


def test_adv_10_kl_penalty_ignores_nan_in_masked_slots():
    from dataclasses import replace

    offsets = np.array([0, 2])
    batch = build_batch([group(sample(0, [1, 2], 1.0))], step=1, version=1)
    batch = replace(
        batch,
        loss_mask=Ragged(np.array([True, False]), offsets),
        old_logprobs=Ragged(np.array([0.5, math.nan], np.float32), offsets),
        reference_logprobs=Ragged(np.array([0.0, math.nan], np.float32), offsets),
    )
    assert kl_penalties(batch, ReferenceKL(kind="k1", coefficient=0.1, place="reward")) == pytest.approx([0.05])
