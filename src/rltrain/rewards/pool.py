"""A fixed number of worker processes for one reward part; a late or dead worker is killed and replaced."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rltrain.concurrency import ended, together
from rltrain.config.errors import UserError
from rltrain.config.reward import Custom, Math
from rltrain.rewards.outcome import Failure, Score
from rltrain.rewards.process import LoadError, WorkerDied, WorkerProcess
from rltrain.types.sample import Status

logger = logging.getLogger(__name__)

ASYNC_CAPACITY = 32
"""Items that an async function's worker has in flight."""
ASYNC_GRACE_S = 1.0
"""An async worker cancels a late item itself; one that doesn't answer this much later is stuck."""


class Pool:
    """Runs items of one part. Replaces every worker it loses, so that there are always `size`."""

    def __init__(
        self,
        name: str,
        part: Math | Custom,
        *,
        size: int,
        timeout_s: float,
        search_path: Path,
        log: Path | None,
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._setup = {"part": part.model_dump(mode="json"), "search_path": str(search_path), "timeout_s": timeout_s}
        self._log = log
        self._size = size
        self._is_async = False
        self._slots: list[_Slot] = []
        self._free: asyncio.Queue[_Slot] = asyncio.Queue()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are ready."""
        return [slot.worker.pid for slot in self._slots if slot.worker is not None]

    async def start(self) -> None:
        """Returns when every worker has loaded the function. Raises UserError where it can't be loaded."""
        self._slots = [_Slot(self._setup, log=self._log) for _ in range(self._size)]
        try:
            workers = await together(*(slot.ready() for slot in self._slots))
        except LoadError as error:
            await self.close()
            raise UserError.single(f"reward.parts.{self._name}", str(error)) from error
        self._is_async = workers[0].is_async
        for slot in self._slots * (ASYNC_CAPACITY if self._is_async else 1):
            self._free.put_nowait(slot)

    async def run(self, item: Mapping[str, Any], *, sample: str, count: int) -> list[Score] | Failure:
        """The scores of an item's `count` responses, or why there are none; `sample` names it in the log."""
        slot = await self._free.get()
        try:
            result = await self._run(slot, item, count)
        finally:
            self._free.put_nowait(slot)
        if isinstance(result, Failure):
            logger.warning("reward %s, sample %s: %s", self._name, sample, result.detail)
        return result

    async def _run(self, slot: _Slot, item: Mapping[str, Any], count: int) -> list[Score] | Failure:
        try:
            async with slot.shared():
                return await self._attempt(slot, item, count)
        except _WorkerLost as lost:
            if not self._is_async:
                return lost.failure
        try:
            async with slot.alone():  # a neighbour in the same worker may have been the stuck one
                return await self._attempt(slot, item, count)
        except _WorkerLost as lost:
            return lost.failure

    async def close(self) -> None:
        """Ends all workers."""
        for slot in self._slots:
            await slot.close()
        self._slots = []
        self._free = asyncio.Queue()

    async def _attempt(self, slot: _Slot, item: Mapping[str, Any], count: int) -> list[Score] | Failure:
        """Raises _WorkerLost where the worker had to be replaced."""
        try:
            worker = await slot.ready()
            if worker.dead:  # it ended while it had nothing to do
                slot.replace(worker)
                worker = await slot.ready()
        except LoadError as error:
            slot.start_again()
            return Failure(Status.REWARD_ERROR, f"no worker: {error}")
        grace = ASYNC_GRACE_S if self._is_async else 0.0
        try:
            reply = await worker.ask(item, timeout_s=self._timeout_s + grace)
        except TimeoutError:
            slot.replace(worker)
            detail = f"took more than {self._timeout_s:g} s; its worker was killed"
            raise _WorkerLost(Failure(Status.REWARD_TIMEOUT, detail)) from None
        except WorkerDied as error:
            slot.replace(worker)
            raise _WorkerLost(Failure(Status.REWARD_ERROR, str(error))) from error
        except asyncio.CancelledError:
            if not self._is_async:
                slot.replace(worker)  # it would go on with the abandoned item
            raise
        return _read(reply, count, self._timeout_s)


class _WorkerLost(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def _read(reply: Mapping[str, Any], count: int, timeout_s: float) -> list[Score] | Failure:
    if reply.get("late"):
        return Failure(Status.REWARD_TIMEOUT, f"took more than {timeout_s:g} s")
    if "error" in reply:
        return Failure(Status.REWARD_ERROR, str(reply["error"]))
    scores = [Score(float(value), dict(parts)) for value, parts in reply["scores"]]
    assert len(scores) == count, "the worker checks lengths"
    assert all(math.isfinite(score.value) for score in scores), "the worker checks values"
    return scores


class _Slot:
    """A worker's place in the pool: holds the present worker, or the start of the next."""

    def __init__(self, setup: Mapping[str, Any], *, log: Path | None) -> None:
        self._setup = setup
        self._log = log
        self._running = 0
        self._reserved = False
        self._changed = asyncio.Condition()
        self._starting = self._start()

    def _start(self) -> asyncio.Task[WorkerProcess]:
        return asyncio.create_task(WorkerProcess.start(self._setup, log=self._log))

    @property
    def worker(self) -> WorkerProcess | None:
        done = self._starting.done() and not self._starting.cancelled() and self._starting.exception() is None
        return self._starting.result() if done else None

    async def ready(self) -> WorkerProcess:
        return await asyncio.shield(self._starting)

    def replace(self, worker: WorkerProcess) -> None:
        """Kills `worker` and starts the next, unless another item's failure has done so."""
        if worker is self.worker:
            worker.kill()
            self._starting = self._start()

    def start_again(self) -> None:
        """Tries anew after a start that failed."""
        if self._starting.done() and self.worker is None:
            self._starting = self._start()

    async def close(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        await ended(self._starting)

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._reserved)
            self._running += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._reserved)
            self._reserved = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._running == 0)
            yield
        finally:
            async with self._changed:
                self._reserved = False
                self._changed.notify_all()
