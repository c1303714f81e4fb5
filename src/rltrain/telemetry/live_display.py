"""The live view on a terminal: a header, the newest numbers, a bar of where time goes, evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rltrain.telemetry.plain_display import NOTE_LIMIT, describe
from rltrain.telemetry.progress import Pace, SampleText, bar_cells, shown_columns, time_shares
from rltrain.telemetry.screen_text import screen_text

SPAN_STYLES = {
    "rollout": "cyan",
    "reward": "green",
    "logprob": "blue",
    "reference": "bright_blue",
    "advantage": "bright_black",
    "update": "magenta",
    "sync": "yellow",
    "eval": "bright_green",
    "save": "bright_red",
    "other": "white",
}
BAR_WIDTH = 48
EVALUATIONS_SHOWN = 5
REFRESHES_PER_S = 4


class LiveDisplay:
    """Notes and samples scroll by above the view. All text goes in as `Text`, so markup in it stays text."""

    def __init__(self, *, num_steps: int, name: str, console: Console) -> None:
        self._num_steps = num_steps
        self._name = name
        self._console = console
        self._pace = Pace(num_steps)
        self._step = 0
        self._eta = ""
        self._metrics: Mapping[str, float] = {}
        self._evaluations: dict[int, dict[str, float]] = {}
        self._live = Live(
            self._view(), console=console, refresh_per_second=REFRESHES_PER_S, vertical_overflow="crop", transient=False
        )

    def start(self) -> None:
        self._live.start()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step, self._metrics = step, metrics
        self._eta = self._pace.after(step, step_s=metrics.get("time/step_s", 0.0))
        self._live.update(self._view())

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        values = {name.removeprefix("eval/"): value for name, value in metrics.items() if name.startswith("eval/")}
        if values:
            self._evaluations[step] = values
            self._live.update(self._view())

    def samples(self, step: int, samples: Sequence[SampleText]) -> None:
        for sample in samples:
            self._console.print(Text(f"sample at {step}  {describe(sample)}", style="dim"))

    def note(self, text: str) -> None:
        self._console.print(Text(screen_text(text, limit=NOTE_LIMIT)))

    def close(self) -> None:
        self._live.stop()

    def _view(self) -> RenderableType:
        parts: list[RenderableType] = [self._header()]
        if self._metrics:
            parts += [self._numbers(), self._time_split()]
        if self._evaluations:
            parts.append(self._evaluation_table())
        return Group(*parts)

    def _header(self) -> RenderableType:
        row = Table.grid(padding=(0, 2))
        steps = Text(f"step {self._step}/{self._num_steps}")
        bar = ProgressBar(total=self._num_steps, completed=self._step, width=BAR_WIDTH)
        row.add_row(Text(self._name, style="bold"), steps, bar, Text(f"eta {self._eta}" if self._eta else ""))
        return row

    def _numbers(self) -> RenderableType:
        line = Text()
        for name, value in shown_columns(self._metrics):
            line.append(f"{name} ", style="dim").append(f"{value}   ", style="bold")
        return line

    def _time_split(self) -> RenderableType:
        shares = time_shares(self._metrics)
        line = Text().append("time ", style="dim")
        for name, cells in bar_cells(shares, width=BAR_WIDTH):
            line.append("█" * cells, style=SPAN_STYLES[name])
        for name, share in shares:
            if share >= 0.01:
                line.append(f"  {name} {share:.0%}", style=SPAN_STYLES[name])
        return line

    def _evaluation_table(self) -> RenderableType:
        shown = list(self._evaluations.items())[-EVALUATIONS_SHOWN:]
        names = list(dict.fromkeys(name for _, values in shown for name in values))
        table = Table("eval at", box=None, padding=(0, 2))
        for name in names:
            table.add_column(Text(name))
        for step, values in shown:
            table.add_row(str(step), *(f"{values[name]:.3f}" if name in values else "" for name in names))
        return table
