"""How far a run is and how a step's numbers read, for every display. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rltrain.telemetry.spans import SPANS

RECENT_STEPS = 20
"""Steps whose median time the rest is estimated from."""
COLUMNS = (
    ("reward/mean", "reward", "{:.3f}"),
    ("response/length_mean", "length", "{:.1f}"),
    ("kl/reference", "kl", "{:.4f}"),
    ("train/loss", "loss", "{:+.4f}"),
    ("throughput/tokens_per_s", "tok/s", "{:,.0f}"),
    ("time/step_s", "step s", "{:.2f}"),
)
"""Metric, name on the screen, format; a metric that a step lacks is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleText:
    """A sample as people read it; texts may be anything that a model wrote."""

    prompt: str
    response: str
    label: str | None
    reward: float | None


class Pace:
    """Time left, from the median of the recent steps (one slow step with an evaluation hardly moves it)."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)

    def after(self, step: int, *, step_s: float) -> str:
        """Estimate after `step` steps, e.g. `1m20s`."""
        self._recent.append(step_s)
        return duration(median(self._recent) * max(0, self._num_steps - step))


def duration(seconds: float) -> str:
    """`45s`, `1m20s`, `3h05m`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest_s:02d}s" if minutes else f"{rest_s}s"


def shown_columns(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Name and formatted value of what a step has of COLUMNS."""
    return [(name, form.format(metrics[metric])) for metric, name, form in COLUMNS if metric in metrics]


def time_shares(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """Spans of a step and their share of its time, those that took any."""
    step_s = metrics.get("time/step_s", 0.0)
    if step_s <= 0:
        return []
    shares = [(name, metrics.get(f"time/{name}_s", 0.0) / step_s) for name in (*SPANS, "other")]
    return [(name, share) for name, share in shares if share > 0]


def bar_cells(shares: list[tuple[str, float]], *, width: int) -> list[tuple[str, int]]:
    """Whole cells for each share, `width` in all, by largest remainder."""
    cells = [int(share * width) for _, share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: cells[i] - shares[i][1] * width)
    for i in by_remainder[: max(0, width - sum(cells))]:
        cells[i] += 1
    return [(name, count) for (name, _), count in zip(shares, cells, strict=True)]
