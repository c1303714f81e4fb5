from __future__ import annotations

import asyncio

import pytest

from rltrain.types.errors import DeadlineExceeded
from rltrain.weight_sync.deadline import Deadline


async def answer(delay_s: float) -> int:
    await asyncio.sleep(delay_s)
    return 42


def test_a_result_in_time_is_passed_on() -> None:
    async def run() -> int:
        return await Deadline(5).wait(answer(0), what="the answer")

    assert asyncio.run(run()) == 42


def test_several_waits_share_one_deadline_and_the_error_says_what_was_awaited() -> None:
    async def run() -> None:
        deadline = Deadline(0.2)
        await deadline.wait(answer(0.15), what="the first")
        await deadline.wait(answer(0.15), what="engine_1 to load bucket 3")

    with pytest.raises(DeadlineExceeded, match=r"engine_1 to load bucket 3.*timeout_s is 0\.2 s"):
        asyncio.run(run())
