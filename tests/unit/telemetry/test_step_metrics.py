from __future__ import annotations

from collections.abc import Callable

import pytest

from rltrain.algorithms.advantages import group_advantages
from rltrain.config.algorithm import GroupMean
from rltrain.config.rules import REWARD_METRICS
from rltrain.telemetry.step_metrics import (
    group_metrics,
    response_metrics,
    reward_metrics,
    rollout_metrics,
    staleness_metrics,
)
from rltrain.types.sample import FinishReason, Sample, SampleGroup, Status

MakeSample = Callable[..., Sample]
MakeGroup = Callable[..., SampleGroup]


def test_log_02_rows_without_tokens_weigh_nothing_in_perplexity(make_sample: MakeSample) -> None:
    real = make_sample([5, 6, 7], logprob=-2.0)
    pads = [make_sample([]) for _ in range(3)]
    assert response_metrics([real, *pads])["response/perplexity"] == pytest.approx(7.389056, abs=1e-5)


def test_log_02_tokens_that_nobody_sampled_weigh_nothing_in_perplexity(make_sample: MakeSample) -> None:
    tool_use = make_sample([5, 6, 7], logprob=-2.0, mask=[1, 0, 1])
    tool_use.logprobs[1] = float("nan")
    metrics = response_metrics([tool_use])
    assert metrics["response/perplexity"] == pytest.approx(7.389056, abs=1e-5)
    assert metrics["tokens/generated"] == 2


def test_log_03_a_mean_is_one_sum_over_one_count_not_a_mean_of_means(make_sample: MakeSample) -> None:
    """Means over tokens: 2 tokens of log-prob -1.5 and 8 of -0.125 make -0.4, where a mean of means makes -0.8125."""
    samples = [make_sample([5] * 2, logprob=-1.5), make_sample([5] * 8, logprob=-0.125)]
    assert response_metrics(samples)["response/perplexity"] == pytest.approx(2.718281828**0.4, abs=1e-6)


def test_log_04_metrics_of_tokens_are_absent_where_no_token_was_sampled(make_sample: MakeSample) -> None:
    metrics = response_metrics([make_sample([5, 6], mask=[0, 0])])
    assert "response/perplexity" not in metrics
    assert metrics["tokens/generated"] == 0


def test_no_reward_part_can_have_the_name_of_a_metric_of_the_whole_reward(make_sample: MakeSample) -> None:
    metrics = reward_metrics([make_sample(reward=1.0), make_sample(reward=0.0)])
    assert {name.removeprefix("reward/") for name in metrics} == REWARD_METRICS


def test_log_07_rewards_are_raw_outcomes_not_advantages(make_sample: MakeSample) -> None:
    samples = [make_sample(reward=1.0), make_sample(reward=0.0)]
    metrics = reward_metrics(samples)
    assert metrics["reward/mean"] == 0.5
    assert metrics["reward/std"] == pytest.approx(0.707107, abs=1e-6)
    advantages = group_advantages([sample.reward for sample in samples], GroupMean())
    assert advantages == pytest.approx([0.707107, -0.707107], abs=1e-5)


def test_rol_08_empty_responses_are_legal_counted_and_reported_both_ways(make_sample: MakeSample) -> None:
    metrics = response_metrics([make_sample([], reward=0.0), make_sample([5, 2], reward=1.0)])
    assert metrics["response/length_mean"] == 1.0
    assert metrics["response/length_mean_nonempty"] == 2.0
    assert metrics["response/empty"] == 0.5


def test_rol_08_a_step_of_empty_responses_alone_has_lengths_of_zero(make_sample: MakeSample) -> None:
    metrics = response_metrics([make_sample([])])
    assert metrics["response/length_mean"] == metrics["response/length_max"] == 0.0
    assert "response/length_mean_nonempty" not in metrics


def test_failed_samples_are_counted_by_status_and_enter_no_mean(make_sample: MakeSample) -> None:
    samples = [
        make_sample([5, 2], reward=1.0),
        make_sample([5] * 9, reward=None, status=Status.ABORTED, finish_reason=FinishReason.ABORT),
        make_sample([5, 2, 2, 2], reward=None, status=Status.REWARD_TIMEOUT),
        make_sample([], reward=None, status=Status.GENERATION_FAILED, finish_reason=FinishReason.ABORT),
    ]
    metrics = response_metrics(samples) | reward_metrics(samples)
    assert metrics["response/failed"] == 0.75
    assert metrics["response/failed/reward_timeout"] == metrics["response/failed/aborted"] == 0.25
    assert metrics["response/length_mean"] == 3.0, "the reward's time-out doesn't undo the response"
    assert metrics["reward/mean"] == 1.0
    assert "reward/std" not in metrics


def test_truncated_is_the_share_that_ended_by_length(make_sample: MakeSample) -> None:
    samples = [make_sample(finish_reason=FinishReason.LENGTH), make_sample(), make_sample(), make_sample()]
    assert response_metrics(samples)["response/truncated"] == 0.25


def test_a_reward_part_is_averaged_over_the_samples_that_have_it(make_sample: MakeSample) -> None:
    samples = [make_sample(parts={"format": 1.0, "answer": 0.0}), make_sample(parts={"answer": 1.0})]
    metrics = reward_metrics(samples)
    assert (metrics["reward/format"], metrics["reward/answer"]) == (1.0, 0.5)


def test_a_group_without_signal_has_equal_rewards_or_a_single_survivor(
    make_sample: MakeSample, make_group: MakeGroup
) -> None:
    mixed = make_group(make_sample(reward=0.0), make_sample(reward=1.0))
    equal = make_group(make_sample(reward=1.0), make_sample(reward=1.0))
    survivor = make_group(make_sample(reward=1.0), make_sample(reward=None, status=Status.ABORTED))
    assert group_metrics([mixed, equal, survivor, mixed])["groups/no_signal"] == 0.5


def test_staleness_is_weighted_by_tokens(make_sample: MakeSample) -> None:
    samples = [make_sample([5] * 3, version=7), make_sample([5], version=3)]
    assert staleness_metrics(samples, version=7) == {"staleness/mean": 1.0, "staleness/max": 4.0}


def test_a_step_where_everything_failed_has_no_means_and_no_nan(make_sample: MakeSample, make_group: MakeGroup) -> None:
    lost = make_sample([], reward=None, status=Status.GENERATION_FAILED, finish_reason=FinishReason.ABORT)
    assert rollout_metrics([make_group(lost, lost)], version=1) == {
        "tokens/generated": 0.0,
        "response/failed": 1.0,
        "response/failed/generation_failed": 1.0,
        "groups/no_signal": 1.0,
    }
