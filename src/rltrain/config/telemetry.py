"""`telemetry:` where a run's metrics and samples go."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rltrain.config.section import Section


class WandbConfig(Section):
    """Weights & Biases; the key comes from WANDB_API_KEY or `wandb login`, never from a config."""

    project: str = Field(min_length=1)
    entity: str | None = Field(default=None, min_length=1)
    mode: Literal["online", "offline"] | None = None
    """When left out, as WANDB_MODE of the environment says, and online without that."""


class TelemetryConfig(Section):
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: WandbConfig | None = None
    """Log to Weights & Biases too (needs the `wandb` extra)."""
    rollouts: bool = True
    """Keep every step's samples as `rollouts/step_N.parquet`."""
    show_samples: int = Field(default=1, ge=0, le=1000)
    """Samples shown on the screen with each evaluation or tenth step."""
