"""Policy losses, elementwise over scored pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from rltrain.config.algorithm import ClipLoss


def clipped_surrogate(
    logprobs_P: Tensor, old_logprobs_P: Tensor, advantages_P: Tensor, *, config: ClipLoss
) -> tuple[Tensor, Tensor]:
    """max(-A r, -A clip(r, 1 - low, 1 + high)) with r = exp(logp - old), and 1.0 where the clipped side was taken.

    Shapes [P], gradient through `logprobs_P` (Schulman et al. 2017, eq. 7; separate bounds: Yu et al. 2025, eq. 10).
    """
    ratio_P = torch.exp(logprobs_P - old_logprobs_P)
    plain_P = -advantages_P * ratio_P
    clipped_P = -advantages_P * ratio_P.clamp(1 - config.clip_low, 1 + config.clip_high)
    return torch.maximum(plain_P, clipped_P), (clipped_P > plain_P).float()
