"""Actor shells: they resolve an import path in the worker and hand calls on, so the driver imports no back end."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def resolve(target: str) -> Any:
    """The object that `module:name` stands for."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class TrainerHost:
    """Synchronous: one call at a time, always on the same thread, but for `lifeline` and `beside`."""

    def __init__(self, target: str, setup: Any, log_path: str) -> None:
        _write_output_to(log_path)
        with _errors_logged():
            self._worker = resolve(target)(setup)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with _errors_logged():
            return getattr(self._worker, method)(*args, **kwargs)

    def beside(self, method: str) -> Any:
        """A method that may run on another thread, beside calls."""
        return self.call(method)

    def settle(self) -> None:
        """Start-up is over: what it left needn't be walked by every garbage collection from now on."""
        gc.collect()
        gc.freeze()

    def address(self) -> tuple[str, int]:
        """This process's node address and a port that is free on it now."""
        import ray.util

        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, probe.getsockname()[1]

    def lifeline(self) -> None:
        """Never returns: a caller that waits for it learns of the process's death."""
        threading.Event().wait()


class EngineHost:
    """Asynchronous: calls interleave."""

    def __init__(self, target: str, setup: Any, log_path: str) -> None:
        _write_output_to(log_path)
        with _errors_logged():
            self._worker = resolve(target)(setup)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with _errors_logged():
            return await getattr(self._worker, method)(*args, **kwargs)

    async def lifeline(self) -> None:
        """Never returns; raises what the engine's own watch does."""
        await self._worker.watch()


@contextmanager
def _errors_logged() -> Generator[None]:
    """The traceback goes to the process's log; the caller gets the message."""
    try:
        yield
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        raise


def _write_output_to(log_path: str) -> None:
    """Sends this process's output, its children's included, to a file of the run."""
    Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
