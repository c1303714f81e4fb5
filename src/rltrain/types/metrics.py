"""Metrics as sums with their counts, so that any split of the work reduces to the same number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and what it is divided by, once, after everything was added up."""

    total: float
    count: float

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float | None:
        """None where nothing was counted: the metric is then absent, not NaN."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Max:
    value: float

    def __add__(self, other: Max) -> Max:
        return Max(max(self.value, other.value))


Metric: TypeAlias = Mean | Max
Metrics: TypeAlias = Mapping[str, Metric]


def merged(parts: Iterable[Metrics]) -> dict[str, Metric]:
    """One set of metrics out of many (micro-batches, ranks, optimizer steps)."""
    result: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            before = result.get(name)
            result[name] = metric if before is None else before + metric  # pyright: ignore[reportOperatorIssue]
    return result


def values(metrics: Metrics) -> dict[str, float]:
    """The numbers to log; those with nothing to count are left out."""
    return {name: metric.value for name, metric in metrics.items() if metric.value is not None}
