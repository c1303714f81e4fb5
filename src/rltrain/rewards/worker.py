"""The worker process of a reward part: `python -m rltrain.rewards.worker FD PARENT_PID`.

It talks JSON lines over the socket FD, so that nothing a response says is ever unpickled. In comes first the part with
the search path, out goes `{"async": bool}` or `{"error": text}`. Then `{"id", "item"}` come in and
`{"id", "scores": [[value, parts], ...]}`, `{"id", "error"}` or `{"id", "late": true}` go out.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from rltrain.config.reward import Custom, Math, RewardPart
from rltrain.rewards.custom import CustomFunction
from rltrain.rewards.outcome import Score

PR_SET_PDEATHSIG = 1
MATH_MEMORY_BYTES = 4 * 2**30
"""Address space of a `math` worker: an answer such as 10^{10^{10}} ends in an error, not in the machine's swap."""
LINE_LIMIT = 2**24
"""Longest line in bytes, either way."""
ERROR_LENGTH = 1000


class Stream(Protocol):
    """The socket as a binary file."""

    def __iter__(self) -> Iterator[bytes]: ...

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    _die_with(int(sys.argv[2]))
    with channel.makefile("rwb") as stream:
        setup = json.loads(stream.readline())
        try:
            function = _function(setup)
        except Exception as error:  # noqa: BLE001 (goes to the driver, which reports it)
            _send(stream, {"error": str(error)})
            return
        _send(stream, {"async": isinstance(function, CustomFunction) and function.is_async})
        if isinstance(function, CustomFunction) and function.is_async:
            asyncio.run(_serve_async(channel, function, timeout_s=setup["timeout_s"]))
        else:
            _serve(stream, function.call if isinstance(function, CustomFunction) else function)


def _die_with(parent: int) -> None:
    """Linux ends this process when the driver ends, even while a function is busy."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the driver is gone")


def _function(setup: Mapping[str, Any]) -> CustomFunction | Callable[[Mapping[str, Any]], list[Score]]:
    part: RewardPart = TypeAdapter[RewardPart](RewardPart).validate_python(setup["part"])
    if isinstance(part, Custom):
        return CustomFunction(part, search_path=Path(setup["search_path"]))
    assert isinstance(part, Math)
    resource.setrlimit(resource.RLIMIT_AS, (MATH_MEMORY_BYTES, MATH_MEMORY_BYTES))
    from rltrain.rewards.math import math_reward  # sympy takes a second

    return lambda item: [Score(math_reward(item["response"], item["label"]))]


def _serve(stream: Stream, function: Callable[[Mapping[str, Any]], list[Score]]) -> None:
    """One item at a time, until the driver closes the socket."""
    for line in stream:
        request = json.loads(line)
        try:
            reply = _scored(function(request["item"]))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the function raises is its result)
            reply = _failed(error)
        _send(stream, {"id": request["id"], **reply})


async def _serve_async(channel: socket.socket, function: CustomFunction, *, timeout_s: float) -> None:
    """Items as they come, several at a time; a late one is cancelled and says so."""
    channel.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=channel, limit=LINE_LIMIT)
    running: set[asyncio.Task[None]] = set()

    async def score(request: Mapping[str, Any]) -> None:
        try:
            reply = _scored(await asyncio.wait_for(function.call_async(request["item"]), timeout_s))
        except TimeoutError:
            reply: dict[str, Any] = {"late": True}
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the function raises is its result)
            reply = _failed(error)
        writer.write(_line({"id": request["id"], **reply}))
        await writer.drain()

    while line := await reader.readline():
        task = asyncio.create_task(score(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


def _scored(scores: list[Score]) -> dict[str, Any]:
    return {"scores": [[score.value, dict(score.parts)] for score in scores]}


def _failed(error: BaseException) -> dict[str, Any]:
    return {"error": f"{type(error).__name__}: {error}"[:ERROR_LENGTH]}


def _send(stream: Stream, message: Mapping[str, Any]) -> None:
    stream.write(_line(message))
    stream.flush()


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


if __name__ == "__main__":
    main()
