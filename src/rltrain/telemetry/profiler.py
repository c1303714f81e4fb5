"""torch's profiler and memory snapshots around parts of chosen steps."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from rltrain.config.profile import ProfileConfig

ROWS = 60
"""Of the table of operations."""
MOST_EVENTS = 400_000
"""Allocations and frees that a memory snapshot goes back."""


class Profiler:
    """Writes `<directory>/step_N/<process>-<part>.*`; `config` None profiles nothing."""

    def __init__(self, config: ProfileConfig | None, directory: Path, *, process: str) -> None:
        self._config = config
        self._directory = directory
        self._process = process

    @contextmanager
    def part(self, name: str, *, step: int) -> Generator[None]:
        """What runs inside is profiled where `step` is one of the chosen."""
        config = self._config
        if config is None or step not in config.steps:
            yield
            return
        folder = self._directory / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self._process}-{name}"
        with ExitStack() as stack:
            if config.memory:
                stack.enter_context(memory_snapshot(folder / f"{stem}.memory.pickle"))
            if config.trace:
                stack.enter_context(trace(folder / f"{stem}.trace.json.gz", table=folder / f"{stem}.operations.txt"))
            yield


@contextmanager
def trace(path: Path, *, table: Path) -> Generator[None]:
    """A trace, and a table of the operations that took the most time on the device."""
    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, record_shapes=False, with_stack=False) as found:
        yield
        if cuda:
            torch.cuda.synchronize()
    found.export_chrome_trace(str(path))
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    averages: Any = found.key_averages()
    table.write_text(averages.table(sort_by=order, row_limit=ROWS, max_name_column_width=90), encoding="utf-8")


@contextmanager
def memory_snapshot(path: Path) -> Generator[None]:
    """All allocations within, with their stacks; CUDA only."""
    memory: Any = torch.cuda.memory  # torch names these as private and documents them
    memory._record_memory_history(max_entries=MOST_EVENTS)
    try:
        yield
        memory._dump_snapshot(str(path))
    finally:
        memory._record_memory_history(enabled=None)
