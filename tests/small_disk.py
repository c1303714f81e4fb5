"""Disks of a size and kind that a test chooses; needs the right to mount."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, *, num_bytes: int) -> Generator[Path]:
    """A file system in memory at `path`; the test is skipped where none may be mounted."""
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(path)]
    try:
        done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"can't mount: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_read_only(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


def fill(path: Path, *, leave: int) -> Path:
    """A file that takes all but so many bytes."""
    filler = path / "filler"
    filler.write_bytes(bytes(max(0, shutil.disk_usage(path).free - leave)))
    return filler
