"""What a run shows while it goes on: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO

from rich.console import Console

from rltrain.telemetry.live_display import LiveDisplay
from rltrain.telemetry.plain_display import PlainDisplay
from rltrain.telemetry.progress import SampleText

SAMPLES_EVERY = 10
"""Samples are shown with each step that is a multiple of this, and with each evaluation."""


class Display(Protocol):
    """Takes what happened, in order. Safe to close twice."""

    def start(self) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A training step is over; `metrics` are those of metrics.jsonl."""
        ...

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sets were evaluated after `step` steps; the `eval/<set>/<metric>` among `metrics` are shown."""
        ...

    def samples(self, step: int, samples: Sequence[SampleText]) -> None: ...

    def note(self, text: str) -> None:
        """A line for people, e.g. what is going on before the first step."""
        ...

    def close(self) -> None: ...


def make_display(*, num_steps: int, name: str, stream: TextIO | None = None) -> Display:
    """The live view where `stream` (standard output) is a terminal that can show it, else plain lines."""
    output: TextIO = sys.stdout if stream is None else stream
    console = Console(file=output, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf"):
        return LiveDisplay(num_steps=num_steps, name=name, console=console)
    return PlainDisplay(num_steps=num_steps, name=name, stream=output)


def num_samples_due(step: int, *, evaluated: bool, show_samples: int) -> int:
    """How many samples to show with a step, given `telemetry.show_samples`."""
    return show_samples if evaluated or step % SAMPLES_EVERY == 0 else 0
