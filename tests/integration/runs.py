"""Starts `rltrain train` as a user does and looks at what it leaves; shared by the tests of whole runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "configs" / "quickstart.yaml"
PROGRAM = (sys.executable, "-c", "from rltrain.cli.app import main; main()")
TOKEN = b"RLTRAIN_RUN_TOKEN="


@dataclass(frozen=True)
class Finished:
    code: int
    output: str
    directory: Path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.directory)


def command(directory: Path, *overrides: str, config: Path = QUICKSTART, program: Sequence[str] = PROGRAM) -> list[str]:
    return [
        *program,
        "train",
        str(config),
        f"run.directory={directory.parent}",
        f"run.name={directory.name}",
        *overrides,
    ]


def train(
    directory: Path, *overrides: str, environment: dict[str, str] | None = None, config: Path = QUICKSTART
) -> Finished:
    done = subprocess.run(
        command(directory, *overrides, config=config),
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return Finished(done.returncode, done.stdout, directory)


def start(
    directory: Path,
    *overrides: str,
    environment: dict[str, str] | None = None,
    config: Path = QUICKSTART,
    program: Sequence[str] = PROGRAM,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(directory, *overrides, config=config, program=program),
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    file = directory / "metrics.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.split("\n") if line]


def wait_for_step(directory: Path, step: int, process: subprocess.Popen[str], *, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = read_metrics(directory)
        if found and found[-1]["step"] >= step:
            return
        assert process.poll() is None, f"the run ended: {process.communicate()[0]}"
        time.sleep(0.2)
    raise AssertionError(f"step {step} didn't come within {timeout_s} s")


def workers_of(driver: int) -> dict[int, str]:
    """Titles by process id of all that a run started: what carries the token that the driver's reaper was given."""
    reaper = [pid for pid in _children(driver) if b"rltrain.cluster.reaper" in _read(pid, "cmdline")]
    token = _read(reaper[0], "cmdline").split(b"\0")[3]
    return {pid: _title(pid) for pid in _all_pids() if TOKEN + token in _read(pid, "environ").split(b"\0")}


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and b"\nState:\tZ" not in _read(pid, "status")]


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not alive(pids)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _children(pid: int) -> list[int]:
    return [child for child in _all_pids() if f"\nPPid:\t{pid}\n".encode() in _read(child, "status")]


def _title(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
