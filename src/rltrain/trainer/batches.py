"""From scored groups to the columns that the trainer gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rltrain.algorithms.advantages import group_advantages
from rltrain.config.algorithm import AdvantageConfig
from rltrain.types.batch import Ragged, RolloutBatch
from rltrain.types.errors import RunError
from rltrain.types.sample import Mask, Sample, SampleGroup


def build_batch(groups: Sequence[SampleGroup], *, step: int, version: int) -> RolloutBatch:
    """Every sample of the step in order; those that must not be trained have no true entry in their mask.

    Advantages are zero until `with_advantages`. Raises RunError where a trainable token's log-prob isn't finite.
    """
    samples = [sample for group in groups for sample in group.samples]
    masks = [_effective_mask(sample) for sample in samples]
    for sample, mask in zip(samples, masks, strict=True):
        if not np.isfinite(sample.logprobs[mask]).all():
            raise RunError(f"sample {sample.group_id}/{sample.index}: the engine gave a log-prob that isn't finite")
    return RolloutBatch(
        step=step,
        version=version,
        prompt_ids=Ragged[np.int32].of([sample.prompt_ids for sample in samples], np.int32),
        response_ids=Ragged[np.int32].of([sample.response_ids for sample in samples], np.int32),
        loss_mask=Ragged[np.bool_].of(masks, np.bool_),
        rollout_logprobs=Ragged[np.float32].of([sample.logprobs for sample in samples], np.float32),
        advantages=Ragged[np.float32].of(
            [np.zeros(len(sample.response_ids), np.float32) for sample in samples], np.float32
        ),
        group_B=np.repeat(np.arange(len(groups), dtype=np.int32), [len(group.samples) for group in groups]),
    )


def with_advantages(
    batch: RolloutBatch,
    groups: Sequence[SampleGroup],
    *,
    config: AdvantageConfig,
    penalties_B: Sequence[float] | None = None,
) -> RolloutBatch:
    """Each group's advantages, the same for every token of a response.

    `penalties_B` (KL in the reward) are taken from the rewards before the baseline.
    """
    penalties = iter(penalties_B if penalties_B is not None else [0.0] * len(batch))
    advantages_B: list[float] = []
    for group in groups:
        rewards_G = [_penalised(sample, next(penalties)) for sample in group.samples]
        advantages_B.extend(group_advantages(rewards_G, config))
    values = np.repeat(np.asarray(advantages_B, np.float32), batch.response_ids.lengths)
    return replace(batch, advantages=Ragged(values, batch.response_ids.offsets))


def _penalised(sample: Sample, penalty: float) -> float | None:
    return sample.reward - penalty if sample.trainable and sample.reward is not None else None


def _effective_mask(sample: Sample) -> Mask:
    return sample.loss_mask if sample.trainable else np.zeros(len(sample.response_ids), np.bool_)
