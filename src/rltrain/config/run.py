"""`run:` what the run is called, where it lives, how long it goes on."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from rltrain.config.section import Section


class RunConfig(Section):
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
    """Name of the run's directory; the config file's stem and the UTC time when left out."""
    directory: Path = Path("runs")
    """Where run directories are made; relative paths count from the config file."""
    steps: int = Field(ge=1, le=10**9)
    """Rollouts to collect and train on."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seeds sampling and random initialisation (the data order has `data.seed`)."""
    deterministic: bool = False
    """Fix what each engine step batches and seed every sample, so that a run repeats bit for bit; slower."""
