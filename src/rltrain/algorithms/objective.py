"""What an update minimises: a sum over scored pairs, which the owner of the process groups divides, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rltrain.algorithms.kl import estimate
from rltrain.algorithms.losses import clipped_surrogate
from rltrain.config.algorithm import AlgorithmConfig, ReferenceKL


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumns:
    """What is known of each scored pair before the forward pass; shape [P], fp32 (the mask bool)."""

    mask_P: Tensor
    advantages_P: Tensor
    rollout_logprobs_P: Tensor
    old_logprobs_P: Tensor | None = None
    """None where this is the only optimizer step of the rollout: old and current log-probs are then equal."""
    reference_logprobs_P: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossOutput:
    total: Tensor
    """Scalar: the sum of the pairs' losses, with its graph."""
    metric_sums: Mapping[str, Tensor]
    """By metric name a tensor [2], detached: the sum and its count, which add up over micro-batches and ranks."""
    metric_maxima: Mapping[str, Tensor]
    """By metric name a scalar, detached."""


class PolicyObjective:
    """The policy loss and the KL to the reference, as the config has them."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    def __call__(self, logprobs_P: Tensor, entropy_P: Tensor, columns: PairColumns) -> LossOutput:
        """The sum over unmasked pairs.

        Shapes [P]; `logprobs_P` carries the graph, `entropy_P` (nats) is only reported. Values at masked pairs, NaN
        and inf included, change neither the result nor its gradient.
        """
        mask_P = columns.mask_P
        logprobs_P = _selected(logprobs_P, mask_P)
        old_P = logprobs_P.detach() if columns.old_logprobs_P is None else _selected(columns.old_logprobs_P, mask_P)
        advantages_P = _selected(columns.advantages_P, mask_P)
        loss_P, clipped_P = clipped_surrogate(logprobs_P, old_P, advantages_P, config=self._config.loss)
        sums = {"train/clip_fraction": clipped_P, "train/entropy": _selected(entropy_P.detach(), mask_P)}
        kl = self._config.kl
        if isinstance(kl, ReferenceKL) and columns.reference_logprobs_P is not None:
            reference_P = _selected(columns.reference_logprobs_P, mask_P)
            kl_P = estimate(logprobs_P, reference_P, kind=kl.kind)
            sums["kl/reference"] = kl_P.detach()
            if kl.place == "loss":
                loss_P = loss_P + kl.coefficient * kl_P
        total = torch.where(mask_P, loss_P, 0.0).sum()
        mismatch_P = (old_P - _selected(columns.rollout_logprobs_P, mask_P)).abs()
        sums |= {"train/loss": loss_P.detach(), "mismatch/abs_logprob_mean": mismatch_P}
        count = mask_P.sum().float()
        return LossOutput(
            total,
            {name: torch.stack([torch.where(mask_P, value_P, 0.0).sum(), count]) for name, value_P in sums.items()},
            {"mismatch/abs_logprob_max": mismatch_P.max() if len(mismatch_P) else count},
        )


def _selected(values_P: Tensor, mask_P: Tensor) -> Tensor:
    """Zeros at masked pairs, before anything is computed from them: a product with the mask would keep NaN."""
    return torch.where(mask_P, values_P, torch.zeros((), dtype=values_P.dtype, device=values_P.device))
