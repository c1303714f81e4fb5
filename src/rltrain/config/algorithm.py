"""`algorithm:` advantage, loss, KL; each choice is a variant with its own knobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rltrain.config.rollout import MOST_SAMPLES_PER_STEP
from rltrain.config.section import Section


class GroupMean(Section):
    """Reward minus the group's mean, over its sample standard deviation (GRPO, Shao et al. 2024, eq. 3)."""

    kind: Literal["group_mean"] = "group_mean"
    scale_by_std: bool = True
    """Divide by the group's standard deviation (n - 1); off as in Dr.GRPO (Liu et al. 2025)."""


class LeaveOneOut(Section):
    """Reward minus the mean of the group's other rewards (RLOO, Ahmadian et al. 2024)."""

    kind: Literal["leave_one_out"] = "leave_one_out"


AdvantageConfig = Annotated[GroupMean | LeaveOneOut, Field(discriminator="kind")]


class ClipLoss(Section):
    """The clipped surrogate of PPO (Schulman et al. 2017, eq. 7), with its own upper bound (clip-higher, DAPO, Yu et
    al. 2025)."""

    kind: Literal["clip"] = "clip"
    clip_low: float = Field(default=0.2, ge=1e-6, lt=1)
    """The ratio's lower bound is 1 - clip_low."""
    clip_high: float = Field(default=0.28, ge=1e-6, le=1e6)
    """The ratio's upper bound is 1 + clip_high."""


class NoKL(Section):
    kind: Literal["none"] = "none"


class ReferenceKL(Section):
    """KL from a frozen reference model; d = logp - logp_ref (Schulman 2020, "Approximating KL divergence")."""

    kind: Literal["k1", "k2", "k3"]
    """k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d."""
    coefficient: float = Field(ge=1e-9, le=1e6)
    """Weight of the KL."""
    place: Literal["loss", "reward"] = "loss"
    """Added to the loss of each token, or its sum over the response taken from the reward before the baseline."""
    reference: Path | None = None
    """Hugging Face directory of the reference model (same architecture); the actor's own start when left out."""


KLConfig = Annotated[NoKL | ReferenceKL, Field(discriminator="kind")]


class AlgorithmConfig(Section):
    advantage: AdvantageConfig = GroupMean()
    loss: ClipLoss = ClipLoss()
    kl: KLConfig = NoKL()
    prompts_per_update: int | None = Field(default=None, ge=1, le=MOST_SAMPLES_PER_STEP // 2)
    """Prompts an optimizer step trains on; a divisor of `rollout.prompts_per_step`, which it is when left out."""
