"""A stop between two steps: who heeds it, and what it ends."""

from __future__ import annotations

import asyncio

import pytest

from rltrain.trainer.stopping import Stopping


async def seven() -> int:
    await asyncio.sleep(0.01)
    return 7


def test_nobody_heeds_a_stop_before_the_loop_says_so() -> None:
    async def whole() -> None:
        notes: list[str] = []
        stopping = Stopping(notes.append)
        assert not stopping.ask()
        assert (stopping.asked, notes) == (False, [])
        stopping.heed()
        assert stopping.ask()
        assert stopping.asked
        assert "the last whole step is saved" in notes[0]

    asyncio.run(whole())


def test_work_is_done_or_ended_by_a_stop() -> None:
    async def whole() -> None:
        stopping = Stopping(print)
        stopping.heed()
        assert await stopping.unless_asked(seven()) == 7
        endless = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_later(0.02, stopping.ask)
        assert await stopping.unless_asked(endless) is None
        assert endless.cancelled()
        assert await stopping.unless_asked(seven()) is None

    asyncio.run(whole())


def test_what_the_work_raises_comes_through() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    async def whole() -> None:
        await Stopping(print).unless_asked(fails())

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(whole())
