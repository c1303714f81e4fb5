"""Ends what is left of a run when its driver is gone, however it went; a process of its own.

Ray's agents outlive a driver that was killed, and so could an engine's own children. Every process of a run carries the
run's token in its environment, which is how exactly they, and nothing else, are found.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rltrain.cluster.environment import TOKEN_VARIABLE, allowed


def processes_of(token: str) -> list[int]:
    """Process ids that carry the token, this process excepted."""
    marker = f"{TOKEN_VARIABLE}={token}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:  # gone meanwhile, or another user's
            continue
        if marker in environment.split(b"\0") and not zombie:
            found.append(int(entry.name))
    return found


def end_all(token: str, *, patience_s: float = 5.0) -> list[int]:
    """Kills the run's processes until none is left; returns those that were still there at first."""
    first = left = processes_of(token)
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
        left = processes_of(token)
    return first


class Reaper:
    """The driver's end: as long as it is open the reaper waits; when the driver dies, the pipe breaks and it acts."""

    def __init__(self, token: str, temporary_directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rltrain.cluster.reaper", token, str(temporary_directory)],
            env=allowed(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal must not end it before the driver
        )

    def finish(self, *, timeout_s: float = 15.0) -> None:
        """Ends what is left now, removes the temporary directory, and waits until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout_s)


def main() -> None:
    token, temporary_directory = sys.argv[1], sys.argv[2]
    sys.stdin.buffer.read()  # returns when the driver closes the pipe or is gone
    end_all(token)
    shutil.rmtree(temporary_directory, ignore_errors=True)


if __name__ == "__main__":
    main()
