"""What an evaluation set's samples say."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import fmean

from rltrain.types.sample import SampleGroup


def pass_at_k(num_samples: int, num_passed: int, *, k: int) -> float:
    """Chance that k of the samples, drawn without replacement, hold a pass (unbiased; Chen et al. 2021, eq. 1).

    Raises ValueError for k beyond the number of samples, which say nothing about it.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {num_samples}")
    return 1.0 - comb(num_samples - num_passed, k) / comb(num_samples, k)


def eval_metrics(groups: Sequence[SampleGroup], *, pass_at: Sequence[int], threshold: float) -> dict[str, float]:
    """`reward_mean`, `pass@<k>` and `failed` of a set; a response passes with a reward of at least `threshold`.

    Failed samples are in no mean. A prompt with fewer than k scored samples is left out of pass@k; where all
    are, the metric is absent.
    """
    rewards = [[s.reward for s in group.samples if s.trainable and s.reward is not None] for group in groups]
    num_samples = sum(len(group.samples) for group in groups)
    num_scored = sum(len(rewards_G) for rewards_G in rewards)
    if not num_samples:
        return {}
    metrics = {"failed": 1 - num_scored / num_samples}
    if num_scored:
        metrics["reward_mean"] = fmean(reward for rewards_G in rewards for reward in rewards_G)
    for k in pass_at:
        passed = [
            pass_at_k(len(rewards_G), sum(reward >= threshold for reward in rewards_G), k=k)
            for rewards_G in rewards
            if len(rewards_G) >= k
        ]
        if passed:
            metrics[f"pass@{k}"] = fmean(passed)
    return metrics
