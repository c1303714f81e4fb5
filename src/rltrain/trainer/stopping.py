"""A stop that is asked for from outside, by a signal or a time limit, and heeded by the loop between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rltrain.concurrency import ended

T = TypeVar("T")


class Stopping:
    """Of one event loop. `note` shows a line to the user."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._asked = asyncio.Event()
        self._heeding = False

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def heed(self) -> None:
        """From now on a stop that is asked for leads to a saved step."""
        self._heeding = True

    def ask(self) -> bool:
        """False where nobody heeds it."""
        if self._heeding:
            self._note("stopping: the last whole step is saved first; a second signal ends the run at once")
            self._asked.set()
        return self._heeding

    async def unless_asked(self, work: Awaitable[T]) -> T | None:
        """The work's result; None where a stop is asked for before it is done, which ends the work."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            await ended(task, asked)
