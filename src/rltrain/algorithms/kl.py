"""Estimators of KL(policy || reference) from samples of the policy (Schulman 2020, "Approximating KL divergence")."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def k1(log_ratio: Tensor) -> Tensor:
    """d: unbiased, of either sign."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """d^2 / 2: biased, never negative; its gradient is that of the KL at the reference."""
    return log_ratio.square() / 2


def k3(log_ratio: Tensor) -> Tensor:
    """exp(-d) - 1 + d: unbiased and never negative; expm1 keeps it exact near 0."""
    return torch.expm1(-log_ratio) + log_ratio


ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def estimate(logprobs: Tensor, reference_logprobs: Tensor, *, kind: str) -> Tensor:
    """Elementwise estimate, any shape; d = logprobs - reference_logprobs."""
    return ESTIMATORS[kind](logprobs - reference_logprobs)
