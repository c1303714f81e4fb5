"""Structured concurrency: no task outlives the call that started it, whatever ends that call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
async def together(first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...


@overload
async def together(first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> tuple[A, B, C]: ...


@overload
async def together(*awaitables: Awaitable[T]) -> tuple[T, ...]: ...


async def together(*awaitables: Awaitable[Any]) -> tuple[Any, ...]:
    """The results in order. The first failure, or the caller's end, ends the others before it is raised.

    Unlike `asyncio.gather`, which leaves them running, and `asyncio.TaskGroup`, whose group of exceptions would hide
    from callers what they catch, and a cancellation behind an error that a child raises on its way out.
    """
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    if not tasks:
        return ()
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [task for task in tasks if task.done() and (task.cancelled() or task.exception() is not None)]
        return tuple(task.result() for task in failed or tasks)
    finally:
        await ended(*tasks)


async def ended(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancels what still runs and waits until all have ended; how they did is no news here."""
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
