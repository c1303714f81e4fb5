import asyncio
import os
import signal
import subprocess
import sys

import pytest

from rltrain.cluster.supervision import supervised
from rltrain.types.errors import WorkerDied


async def forever() -> None:
    await asyncio.Event().wait()


async def dies_soon() -> None:
    await asyncio.sleep(0.02)
    raise WorkerDied("engine-0 died")


async def answer() -> int:
    await asyncio.sleep(0.01)
    return 42


def test_the_main_tasks_result_is_returned_and_lifelines_are_let_go():
    assert asyncio.run(supervised(answer(), [forever()])) == 42


def test_a_dead_worker_ends_a_main_task_that_waits_for_something_else():
    with pytest.raises(WorkerDied, match="engine-0"):
        asyncio.run(supervised(forever(), [forever(), dies_soon()]))


def test_the_main_tasks_error_comes_through():
    with pytest.raises(WorkerDied):
        asyncio.run(supervised(dies_soon(), [forever()]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_and_runs_what_must_run_last(number: signal.Signals):
    cleaned: list[bool] = []

    async def main() -> None:
        os.kill(os.getpid(), number)
        try:
            await forever()
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(supervised(main(), [forever()]))
    assert cleaned == [True]


def test_a_task_that_heeds_a_signal_ends_by_itself_and_is_an_interruption_all_the_same():
    saved: list[bool] = []

    async def whole() -> None:
        asked = asyncio.Event()

        def ask() -> bool:
            asked.set()
            return True

        async def main() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asked.wait()
            await asyncio.sleep(0.05)
            saved.append(True)

        await supervised(main(), [forever()], ask=ask, grace_s=30)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(whole())
    assert saved == [True]


@pytest.mark.parametrize("heeds", [True, False])
def test_a_time_limit_interrupts_at_once_or_after_the_grace_period(heeds: bool):
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(supervised(forever(), [], ask=lambda: heeds, grace_s=0.05, limit_s=0.02))


def test_a_time_limit_that_is_not_reached_changes_nothing():
    assert asyncio.run(supervised(answer(), [forever()], limit_s=30)) == 42


def test_a_second_signal_ends_the_process_at_once_also_while_it_saves():
    code = (
        "import asyncio, os, signal\n"
        "from rltrain.cluster.supervision import supervised\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        await asyncio.sleep(0.2)\n"
        "    await asyncio.sleep(30)\n"
        "asyncio.run(supervised(main(), [], ask=lambda: True, grace_s=30))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=20, check=False)
    assert done.returncode == 130
