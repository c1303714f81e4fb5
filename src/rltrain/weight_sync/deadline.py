"""A time by which a whole sync must be through, however many waits it has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from rltrain.types.errors import DeadlineExceeded

T = TypeVar("T")


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    async def wait(self, awaitable: Awaitable[T], *, what: str) -> T:
        """The result, or DeadlineExceeded that says what was awaited."""
        try:
            return await asyncio.wait_for(awaitable, max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            rule = f"weight_sync.timeout_s is {self._seconds:g} s"
            raise DeadlineExceeded(f"weight sync: waited for {what}, in vain ({rule})") from None
