"""`profile:` where the time and the memory of chosen steps go."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rltrain.config.section import Section


class ProfileConfig(Section):
    steps: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Training steps to look into; profiled steps are slower than others."""
    trace: bool = True
    """Write torch profiler's trace of each trainer's part (for Perfetto or chrome://tracing) and a table of its
    operations to `profile/step_N`."""
    memory: bool = False
    """Write a snapshot of GPU memory, with every allocation's stack, for https://docs.pytorch.org/memory_viz (GPUs
    only)."""
