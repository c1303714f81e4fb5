"""Which saved steps stay. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    keep_last: int | None = None
    """So many of the newest; all where None."""
    keep_every: int | None = None
    """And each whose step divides by this."""
    keep_best: int = 0
    """And so many of the best by a metric; where fewer have it, the newest of the others make up for them."""
    mode: Literal["max", "min"] = "max"

    def kept(self, steps: Mapping[int, float | None]) -> set[int]:
        """Of the saved steps, each with its metric or None; the newest one is always among them."""
        newest = sorted(steps, reverse=True)
        if self.keep_last is None:
            return set(newest)
        every = {step for step in steps if self.keep_every is not None and step % self.keep_every == 0}
        return {*newest[: max(1, self.keep_last)], *every, *self._best(steps)}

    def _best(self, steps: Mapping[int, float | None]) -> list[int]:
        sign = 1.0 if self.mode == "max" else -1.0
        measured = [(sign * value, step) for step, value in steps.items() if value is not None and value == value]
        best = [step for _, step in sorted(measured, reverse=True)]
        rest = sorted(steps.keys() - set(best), reverse=True)
        return [*best, *rest][: self.keep_best]
