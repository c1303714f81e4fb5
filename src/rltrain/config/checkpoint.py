"""`checkpoint:` what of a run is kept on disk to go on from, and to use elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rltrain.config.section import Seconds, Section


class CheckpointConfig(Section):
    every: int | None = Field(default=None, ge=1, le=10**9)
    """Save the run's whole state as `checkpoints/step_N` after every so many steps, and after the last one, for
    `rltrain train --resume`; when left out, no step is saved."""
    optimizer: bool = True
    """Save the optimizer's moments, too: 12 bytes a parameter and not 4. Without them, the moments and the learning
    rate's schedule of a resumed run begin anew."""
    keep_last: int | None = Field(default=2, ge=1, le=10**9)
    """Saved steps to keep, counted from the newest; null keeps all."""
    keep_every: int | None = Field(default=None, ge=1, le=10**9)
    """Keep each saved step whose number divides by this, too."""
    keep_best: int = Field(default=0, ge=0, le=10**9)
    """Keep so many of the best by `metric`, too."""
    metric: str | None = Field(default=None, min_length=1)
    """Key of `metrics.jsonl` that says how good a step is, e.g. `reward/mean`; steps without it come last."""
    mode: Literal["max", "min"] = "max"
    """Which of the metric's values are good."""
    grace_s: Seconds = 60.0
    """Seconds that a run has to save its last whole step, from the first Ctrl-C, SIGTERM or `run.max_wall_time` on."""
    on_failure: Literal["stop", "continue"] = "stop"
    """When the disk can't take a step: end the run, or say so and go on. Earlier saved steps are whole either way."""
    export_final: bool = True
    """Write the final weights as a Hugging Face directory, `hf/step_N`, loadable by transformers and vLLM."""
