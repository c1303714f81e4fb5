"""`run:` what the run is called, where it lives, how long it goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, WithJsonSchema

from rltrain.config.section import Section


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_RULE)
    try:
        found = _LENIENT.validate_python(value if isinstance(value, str) else f"PT{value}S")
    except ValidationError:
        raise ValueError(_RULE) from None
    if not timedelta(seconds=1) <= found <= timedelta(days=365):
        raise ValueError("must be 1 second to 365 days")
    return found


_RULE = "must be a time: seconds, HH:MM:SS, or e.g. P1DT2H"
_LENIENT = TypeAdapter(timedelta)
_WAYS: dict[str, Any] = {"anyOf": [{"type": "number", "minimum": 1, "maximum": 31536000}, {"type": "string"}]}
Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_WAYS)]


class RunConfig(Section):
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
    """Name of the run's directory; the config file's stem and the UTC time when left out."""
    directory: Path = Path("runs")
    """Where run directories are made; relative paths count from the config file."""
    steps: int = Field(ge=1, le=10**9)
    """Rollouts to collect and train on."""
    max_wall_time: Duration | None = None
    """Save the last whole step and end with exit code 130 after this time, counted from when the processes start:
    seconds, `HH:MM:SS`, or `P1DT2H`; for queues that kill jobs. Leave `checkpoint.grace_s` of the queue's time."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seeds sampling and random initialisation (the data order has `data.seed`)."""
    deterministic: bool = False
    """Fix what each engine step batches and seed every sample, so that a run repeats bit for bit; slower."""
