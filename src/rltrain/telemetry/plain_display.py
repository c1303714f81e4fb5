"""Plain lines, one a step, for files, pipes and simple terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from rltrain.telemetry.progress import Pace, SampleText, shown_columns, time_shares
from rltrain.telemetry.screen_text import screen_text

NOTE_LIMIT = 2000


class PlainDisplay:
    """Writes and flushes line by line; characters that the stream can't encode are escaped."""

    def __init__(self, *, num_steps: int, name: str, stream: TextIO) -> None:
        self._num_steps = num_steps
        self._name = name
        self._stream = stream
        self._pace = Pace(num_steps)

    def start(self) -> None:
        self._line(f"run {self._name}, {self._num_steps} steps")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        parts = [f"step {step}/{self._num_steps}"]
        parts += [f"{name} {value}" for name, value in shown_columns(metrics)]
        shares = sorted(time_shares(metrics), key=lambda item: -item[1])[:3]
        if shares:
            parts.append("(" + ", ".join(f"{name} {share:.0%}" for name, share in shares) + ")")
        parts.append(f"eta {self._pace.after(step, step_s=metrics.get('time/step_s', 0.0))}")
        self._line("  ".join(parts))

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [f"{name.removeprefix('eval/')} {value:.3f}" for name, value in metrics.items() if _is_eval(name)]
        if values:
            self._line(f"eval at {step}  " + "  ".join(values))

    def samples(self, step: int, samples: Sequence[SampleText]) -> None:
        for sample in samples:
            self._line(f"sample at {step}  {describe(sample)}")

    def note(self, text: str) -> None:
        self._line(screen_text(text, limit=NOTE_LIMIT))

    def close(self) -> None:
        self._stream.flush()

    def _line(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()


def describe(sample: SampleText) -> str:
    """A sample in one line of safe text."""
    label = "" if sample.label is None else f"  label '{screen_text(sample.label)}'"
    reward = "none" if sample.reward is None else f"{sample.reward:.3f}"
    return f"'{screen_text(sample.prompt)}' -> '{screen_text(sample.response)}'{label}  reward {reward}"


def _is_eval(name: str) -> bool:
    return name.startswith("eval/")
