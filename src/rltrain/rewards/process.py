"""The driver's end of a reward worker: started with a socket, asked with a deadline, killed when late."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rltrain.rewards.worker import LINE_LIMIT

START_TIMEOUT_S = 120.0
"""Longest a worker may take to import its function."""


class LoadError(ValueError):
    """The worker can't load its function; the message says why."""


class WorkerDied(RuntimeError):
    """The worker ended, or broke the protocol, before it answered."""


class WorkerProcess:
    """One running worker. Use `start`; `capacity` items may be in flight at a time."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._listening: asyncio.Task[None] | None = None
        self._death: str | None = None
        self.is_async = False

    @classmethod
    async def start(cls, setup: Mapping[str, Any], *, log: Path | None) -> WorkerProcess:
        """Returns when the function is loaded. Raises LoadError."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = _spawn(theirs.fileno(), log)
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        worker = cls(process, reader, writer)
        try:
            await asyncio.wait_for(worker._greet(setup), START_TIMEOUT_S)
        except TimeoutError:
            worker.kill()
            raise LoadError(f"a reward worker didn't load its function within {START_TIMEOUT_S:.0f} s") from None
        except BaseException:
            worker.kill()
            raise
        return worker

    @property
    def dead(self) -> bool:
        """Whether it is known to have ended."""
        return self._death is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, item: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The worker's reply to one item. Raises TimeoutError or WorkerDied; the caller then kills the worker."""
        if self._death is not None:
            raise WorkerDied(self._death)
        number = next(self._numbers)
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        line = json.dumps({"id": number, "item": item}, default=str).encode() + b"\n"
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(line)
                await self._writer.drain()
                return await future
        except ConnectionError as error:
            raise WorkerDied(self._death or f"the worker ended: {error}") from error
        finally:
            self._waiting.pop(number, None)

    def kill(self) -> None:
        """Ends the worker and what it started; waits for it, which is at most milliseconds after SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._listening is not None:
            self._listening.cancel()
        self._fail_waiting("the worker was killed")
        self._writer.close()

    async def _greet(self, setup: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(setup).encode() + b"\n")
        line = await self._reader.readline()
        if not line:
            raise LoadError(f"the reward worker ended while loading, exit status {self._process.wait()}")
        hello = json.loads(line)
        if "error" in hello:
            raise LoadError(hello["error"])
        self.is_async = hello["async"]
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                reply = json.loads(line)
                future = self._waiting.get(reply["id"])
                if future is not None and not future.done():
                    future.set_result(reply)
            status = await asyncio.to_thread(self._process.wait)
            self._fail_waiting(f"the worker ended before it answered, exit status {status}")
        except ConnectionError as error:
            self._fail_waiting(f"the worker ended before it answered: {error}")
        except (ValueError, KeyError, TypeError) as error:
            self._fail_waiting(f"the worker's answer can't be read: {error}")

    def _fail_waiting(self, reason: str) -> None:
        self._death = self._death or reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerDied(self._death))


def _spawn(descriptor: int, log: Path | None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is the driver's to handle, and a kill reaches the worker's children."""
    # -P keeps the working directory off the module path.
    command = [sys.executable, "-P", "-m", "rltrain.rewards.worker", str(descriptor), str(os.getpid())]
    with Path(os.devnull if log is None else log).open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
