"""Advantages of a group's samples from their rewards; group statistics use the sample standard deviation (n - 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

from rltrain.config.algorithm import AdvantageConfig, GroupMean, LeaveOneOut

EPSILON = 1e-6
"""Added to the standard deviation, as peers do."""


def centred(rewards_G: Sequence[float]) -> list[float]:
    """Reward minus the group's mean; exactly zero where all are equal (their float mean need not be)."""
    if max(rewards_G) == min(rewards_G):
        return [0.0] * len(rewards_G)
    mean = fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


def group_mean(rewards_G: Sequence[float], config: GroupMean) -> list[float]:
    """Centred rewards, optionally over their sample standard deviation (GRPO, Shao et al. 2024, eq. 3)."""
    deviations_G = centred(rewards_G)
    if not config.scale_by_std or not any(deviations_G):
        return deviations_G
    scale = stdev(rewards_G) + EPSILON
    return [deviation / scale for deviation in deviations_G]


def leave_one_out(rewards_G: Sequence[float], config: LeaveOneOut) -> list[float]:
    """Reward minus the mean of the group's others, n / (n - 1) times the centred reward (Ahmadian et al. 2024)."""
    if len(rewards_G) == 1:
        return [0.0]
    factor = len(rewards_G) / (len(rewards_G) - 1)
    return [factor * deviation for deviation in centred(rewards_G)]


ESTIMATORS: dict[str, Callable[[Sequence[float], Any], list[float]]] = {
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
}


def group_advantages(rewards_G: Sequence[float | None], config: AdvantageConfig) -> list[float]:
    """Advantages of a group; None marks a sample that failed: it gets 0 and counts in no statistic.

    A single survivor has nothing to be compared with and gets 0 too.
    """
    kept = [reward for reward in rewards_G if reward is not None]
    if len(kept) < 2:
        return [0.0] * len(rewards_G)
    advantages = iter(ESTIMATORS[config.kind](kept, config))
    return [0.0 if reward is None else next(advantages) for reward in rewards_G]
