"""Where a step's wall time goes: spans on the driver's critical path, and the remainder."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

SPANS = ("rollout", "reward", "logprob", "reference", "advantage", "update", "sync", "eval", "save")
"""Names that a step's time is split over, in the order of a step; `other` is what none of them covers."""
NANOSECONDS = 1e9


class StepClock:
    """Splits wall time over spans. Nested spans count for the innermost alone, so nothing is counted twice.

    Spans belong to the driver's one task: concurrent tasks must not open them. `now_ns` is a monotonic clock.
    """

    def __init__(self, *, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._open: list[str] = []
        self._mark_ns = now_ns()
        self._spent_ns = _zeros()

    @contextmanager
    def span(self, name: str) -> Generator[None]:
        """Counts the time inside for `name`, one of SPANS."""
        if name not in SPANS:
            raise ValueError(f"span {name!r} is none of {', '.join(SPANS)}")
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def restart(self) -> None:
        """Forgets what was counted and starts a step now."""
        self._charge()
        self._spent_ns = _zeros()

    def finish(self) -> dict[str, float]:
        """Ends the step and starts the next: `time/step_s` and, adding up to it, `time/<span>_s` and `time/other_s`."""
        assert not self._open, f"the step ends inside of {self._open}"
        self._charge()
        spent_ns, self._spent_ns = self._spent_ns, _zeros()
        seconds = {f"time/{name}_s": spent / NANOSECONDS for name, spent in spent_ns.items()}
        return {"time/step_s": sum(spent_ns.values()) / NANOSECONDS, **seconds}

    def _charge(self) -> None:
        now_ns = self._now_ns()
        self._spent_ns[self._open[-1] if self._open else "other"] += now_ns - self._mark_ns
        self._mark_ns = now_ns


def _zeros() -> dict[str, int]:
    return dict.fromkeys((*SPANS, "other"), 0)
