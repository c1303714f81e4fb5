"""What a rollout's samples say, as numbers. Pure; every mean is one sum over one count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

import numpy as np

from rltrain.types.sample import FinishReason, Sample, SampleGroup, Status

NOT_GENERATED = frozenset({Status.GENERATION_FAILED, Status.ABORTED, Status.NO_ROOM})
"""Statuses without a whole response: such samples count as failed and enter no mean."""


def rollout_metrics(groups: Sequence[SampleGroup], *, version: int) -> dict[str, float]:
    """Rewards, response lengths, failures, groups without signal and staleness; see docs/metrics.md.

    `version` is the trainer's weights version. What there is nothing to compute from is absent, never NaN.
    """
    samples = [sample for group in groups for sample in group.samples]
    return {
        **reward_metrics(samples),
        **response_metrics(samples),
        **group_metrics(groups),
        **staleness_metrics(samples, version=version),
    }


def reward_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Over samples that may be trained on: raw outcomes, never advantages."""
    scored = [sample for sample in samples if sample.trainable]
    rewards = [sample.reward for sample in scored if sample.reward is not None]
    if not rewards:
        return {}
    metrics = {"reward/mean": fmean(rewards)}
    if len(rewards) > 1:
        metrics["reward/std"] = stdev(rewards)
    for name in dict.fromkeys(name for sample in scored for name in sample.reward_parts):
        values = [sample.reward_parts[name] for sample in scored if name in sample.reward_parts]
        metrics[f"reward/{name}"] = fmean(values)
    return metrics


def response_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Lengths in tokens, over generated responses; shares of failures over all samples."""
    if not samples:
        return {}
    failures = Counter(sample.status for sample in samples if sample.status is not Status.OK)
    sampled = sum(int(sample.loss_mask.sum()) for sample in samples)
    metrics = {"tokens/generated": float(sampled), "response/failed": failures.total() / len(samples)}
    metrics |= {f"response/failed/{status}": count / len(samples) for status, count in failures.items()}
    generated = [sample for sample in samples if sample.status not in NOT_GENERATED]
    if not generated:
        return metrics
    lengths = [len(sample.response_ids) for sample in generated]
    nonempty = [length for length in lengths if length]
    metrics |= {
        "response/length_mean": fmean(lengths),
        "response/length_max": float(max(lengths)),
        "response/empty": (len(lengths) - len(nonempty)) / len(lengths),
        "response/truncated": _share(sample.finish_reason is FinishReason.LENGTH for sample in generated),
    }
    if nonempty:
        metrics["response/length_mean_nonempty"] = fmean(nonempty)
    return metrics | _perplexity(generated)


def group_metrics(groups: Sequence[SampleGroup]) -> dict[str, float]:
    """Share of groups that teach a group estimator nothing: fewer than two scored samples, or all rewards equal."""
    if not groups:
        return {}
    return {"groups/no_signal": _share(len(_distinct_rewards(group)) < 2 for group in groups)}


def staleness_metrics(samples: Iterable[Sample], *, version: int) -> dict[str, float]:
    """Versions that the sampling weights were behind the trainer's, over tokens."""
    spans = [span for sample in samples if sample.status not in NOT_GENERATED for span in sample.version_spans]
    num_tokens = sum(span.end - span.start for span in spans)
    if not num_tokens:
        return {}
    behind = sum((version - span.version) * (span.end - span.start) for span in spans)
    return {
        "staleness/mean": behind / num_tokens,
        "staleness/max": float(max(version - span.version for span in spans if span.end > span.start)),
    }


def _perplexity(samples: Sequence[Sample]) -> dict[str, float]:
    """exp of minus the mean log-prob over sampled tokens: rows without such tokens weigh nothing."""
    num_tokens = sum(int(sample.loss_mask.sum()) for sample in samples)
    if not num_tokens:
        return {}
    total = sum(float(np.sum(sample.logprobs, where=sample.loss_mask, dtype=np.float64)) for sample in samples)
    return {"response/perplexity": math.exp(-total / num_tokens)}


def _distinct_rewards(group: SampleGroup) -> set[float]:
    return {sample.reward for sample in group.samples if sample.trainable and sample.reward is not None}


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values)
