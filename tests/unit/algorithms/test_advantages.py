import math

import pytest

from rltrain.algorithms.advantages import centred, group_advantages
from rltrain.config.algorithm import GroupMean, LeaveOneOut

SCALED, PLAIN, LEAVE_ONE_OUT = GroupMean(), GroupMean(scale_by_std=False), LeaveOneOut()


def test_equal_rewards_are_exactly_zero_even_where_their_float_mean_is_not():
    assert centred([0.1] * 3) == [0.0, 0.0, 0.0]
    assert sum([0.1] * 3) / 3 != 0.1  # what makes the fact worth a test


def test_adv_05_one_sample_or_equal_rewards_give_zero():
    for config in (SCALED, PLAIN, LEAVE_ONE_OUT):
        assert group_advantages([1.0], config) == [0.0]
        assert group_advantages([1.0, 1.0, 1.0, 1.0], config) == [0.0] * 4


def test_adv_05_sample_standard_deviation():
    assert group_advantages([1, 0, 0, 0], SCALED) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    three_of_eight = group_advantages([1, 1, 1, 0, 0, 0, 0, 0], SCALED)
    assert three_of_eight[0] == pytest.approx(1.207614, abs=1e-5)
    assert three_of_eight[-1] == pytest.approx(-0.724569, abs=1e-5)


def test_adv_06_leave_one_out_values():
    assert group_advantages([1, 1, 0, 0.5], LEAVE_ONE_OUT) == pytest.approx([0.5, 0.5, -0.833333, -0.166667], abs=1e-6)
    three_of_eight = group_advantages([1, 1, 1, 0, 0, 0, 0, 0], LEAVE_ONE_OUT)
    assert (three_of_eight[0], three_of_eight[-1]) == pytest.approx((0.714286, -0.428571), abs=1e-6)


def test_leave_one_out_equals_its_definition():
    rewards = [0.3, -1.2, 2.5, 0.0, 0.7]
    naive = [r - (sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
    assert group_advantages(rewards, LEAVE_ONE_OUT) == pytest.approx(naive, abs=1e-12)


def test_a_failed_sample_leaves_its_groups_baseline_alone():
    with_failure = group_advantages([1.0, None, 0.0, 0.0], SCALED)
    assert with_failure[1] == 0.0
    assert [with_failure[i] for i in (0, 2, 3)] == group_advantages([1.0, 0.0, 0.0], SCALED)


def test_adv_09_the_mask_is_decided_before_the_statistics():
    assert group_advantages([1.0, None], PLAIN) == [0.0, 0.0]


def test_log_07_two_rewards():
    advantages = group_advantages([1.0, 0.0], SCALED)
    assert advantages == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
