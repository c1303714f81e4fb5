"""The run's main task together with what ends it early: a dead worker, Ctrl-C, SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rltrain.concurrency import ended

T = TypeVar("T")

INTERRUPTED = 130


def nobody() -> bool:
    return False


async def supervised(
    main: Awaitable[T],
    lifelines: Sequence[Awaitable[None]],
    *,
    ask: Callable[[], bool] = nobody,
    grace_s: float = 0.0,
    limit_s: float | None = None,
) -> T:
    """The main task's result. A lifeline that fails cancels it and is raised instead.

    The first SIGINT or SIGTERM, or the end of `limit_s`, cancels it too and raises KeyboardInterrupt; where `ask` says
    that it is going to end by itself, only after `grace_s`. A second signal ends the process at once.
    """
    task = asyncio.ensure_future(main)
    watchers = [asyncio.ensure_future(lifeline) for lifeline in lifelines]
    interruption = _Interruption(task, ask=ask, grace_s=grace_s)
    interruption.listen(limit_s)
    try:
        await asyncio.wait([task, *watchers], return_when=asyncio.FIRST_COMPLETED)
        for watcher in watchers:
            if watcher.done() and not watcher.cancelled():
                watcher.result()
        result = await task
    except BaseException:
        if interruption.happened:  # whatever else broke on the way out
            raise KeyboardInterrupt from None
        raise
    finally:
        await ended(task, *watchers)
        interruption.ignore()
    if interruption.happened:
        raise KeyboardInterrupt
    return result


class _Interruption:
    """Ends a task once a signal or the clock says so."""

    def __init__(self, task: asyncio.Future[Any], *, ask: Callable[[], bool], grace_s: float) -> None:
        self._task, self._ask, self._grace_s = task, ask, grace_s
        self._timers: list[asyncio.TimerHandle] = []
        self.happened = False

    def listen(self, limit_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        if limit_s is not None:
            self._timers.append(loop.call_later(limit_s, self._stop))

    def ignore(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        for timer in self._timers:
            timer.cancel()

    def _signalled(self) -> None:
        if self.happened:
            os._exit(INTERRUPTED)  # the reaper ends the workers
        self._stop()

    def _stop(self) -> None:
        if self.happened:
            return
        self.happened = True
        if self._ask():
            self._timers.append(asyncio.get_running_loop().call_later(self._grace_s, self._task.cancel))
        else:
            self._task.cancel()
