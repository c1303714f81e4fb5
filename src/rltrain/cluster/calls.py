"""Waiting for workers: with a deadline, and failing together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import ray.exceptions

from rltrain.concurrency import together
from rltrain.config.errors import UserError
from rltrain.types.errors import DeadlineExceeded, RunError, WorkerDied

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[T], *, what: str) -> T:
    """The result, or DeadlineExceeded that says what was awaited."""
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        raise DeadlineExceeded(f"waited {seconds:g} s for {what}, in vain") from None


async def all_of(references: Sequence[Any], *, names: Sequence[str], logs: str) -> tuple[Any, ...]:
    """Every worker's result in order; the first failure is raised without waiting for what the others compute."""
    return await together(*(_named(reference, name, logs) for reference, name in zip(references, names, strict=True)))


async def one(reference: Any, *, name: str, logs: str) -> Any:
    return await _named(reference, name, logs)


async def _named(reference: Any, name: str, logs: str) -> Any:
    try:
        return await reference
    except ray.exceptions.RayActorError as error:
        raise WorkerDied(f"{name} died; its last lines are in {logs}/{name}.log") from error
    except ray.exceptions.RayTaskError as error:
        raise _unwrapped(error, name, logs) from error


def _unwrapped(error: ray.exceptions.RayTaskError, name: str, logs: str) -> Exception:
    """The worker's own exception where a user can read it, else a RunError with the place of the traceback."""
    cause = error.cause
    if isinstance(cause, UserError | RunError):
        return cause
    kind = type(cause).__name__
    if kind == "EngineDeadError":
        return WorkerDied(f"{name}: the engine's process died; its last lines are in {logs}/{name}.log")
    return RunError(f"{name} failed with {kind}: {cause}; the traceback is in {logs}/{name}.log")
