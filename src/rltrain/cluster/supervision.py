"""The run's main task together with what ends it early: a dead worker, Ctrl-C, SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from rltrain.concurrency import ended

T = TypeVar("T")

INTERRUPTED = 130


async def supervised(main: Awaitable[T], lifelines: Sequence[Awaitable[None]]) -> T:
    """The main task's result. A lifeline that fails cancels it and is raised instead.

    The first SIGINT or SIGTERM cancels it too and raises KeyboardInterrupt; a second one ends the process at once.
    """
    task = asyncio.ensure_future(main)
    watchers = [asyncio.ensure_future(lifeline) for lifeline in lifelines]
    interrupted = _on_signal(task)
    try:
        await asyncio.wait([task, *watchers], return_when=asyncio.FIRST_COMPLETED)
        for watcher in watchers:
            if watcher.done() and not watcher.cancelled():
                watcher.result()
        return await task
    except BaseException:
        if interrupted.is_set():  # whatever else broke on the way out
            raise KeyboardInterrupt from None
        raise
    finally:
        await ended(task, *watchers)
        _restore_signals()


def _on_signal(task: asyncio.Future[T]) -> asyncio.Event:
    interrupted = asyncio.Event()

    def stop() -> None:
        if interrupted.is_set():
            os._exit(INTERRUPTED)  # the reaper ends the workers
        interrupted.set()
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return interrupted


def _restore_signals() -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
