import asyncio
import os
import signal

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
