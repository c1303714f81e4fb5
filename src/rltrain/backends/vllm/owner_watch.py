"""Ends this process when the process that it works for is gone, however that ended."""

from __future__ import annotations

import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """From now on this process is killed as soon as process `pid` has ended; at once if it is gone already."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return _die()
    threading.Thread(target=_watch, args=(descriptor,), name=f"die_with_{pid}", daemon=True).start()
    return None


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)  # a pidfd is readable once its process has ended
    poll.poll()
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
