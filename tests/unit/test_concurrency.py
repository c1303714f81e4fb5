"""No child outlives its parent, and nothing of one is said after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rltrain.concurrency import ended, together


class Child:
    """Waits, and on being cancelled takes a moment and may raise an error of its own."""

    def __init__(self, *, error_on_cancel: Exception | None = None) -> None:
        self.left = False
        self._error = error_on_cancel

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            self.left = True
            if self._error is not None:
                raise self._error


async def fails() -> None:
    await asyncio.sleep(0.01)
    raise ValueError("first")


def complaints_of(main: Any) -> list[str]:
    """What asyncio would print about futures that nobody looked at."""
    found: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["message"]))
        await main

    asyncio.run(watched())
    return found


def test_results_come_in_order() -> None:
    async def after(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    assert asyncio.run(together(after(0.02), after(0.0), after(0.01))) == (0.02, 0.0, 0.01)
    assert asyncio.run(together()) == ()


def test_a_failure_ends_the_others_before_it_is_raised() -> None:
    child = Child(error_on_cancel=RuntimeError("second"))

    async def main() -> None:
        with pytest.raises(ValueError, match="first"):
            await together(child.run(), fails())
        assert child.left

    assert complaints_of(main()) == []


@pytest.mark.parametrize("error", [None, RuntimeError("on the way out")])
def test_a_cancelled_caller_is_cancelled_whatever_its_children_raise(error: Exception | None) -> None:
    children = [Child(error_on_cancel=error), Child()]

    async def main() -> None:
        task = asyncio.create_task(together(*(child.run() for child in children)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(child.left for child in children)

    assert complaints_of(main()) == []


def test_ended_waits_for_all_of_them_and_raises_nothing() -> None:
    child = Child(error_on_cancel=RuntimeError("late"))

    async def main() -> None:
        failed = asyncio.ensure_future(fails())
        running = asyncio.ensure_future(child.run())
        await asyncio.sleep(0.02)
        await ended(failed, running, None)
        assert child.left

    assert complaints_of(main()) == []
