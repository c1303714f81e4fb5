"""Resident memory of the run's processes on this machine, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def resident_bytes(pid: int) -> int | None:
    """Resident set size, shared pages included; None where the process is gone or there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_metrics(pids: Mapping[str, int]) -> dict[str, float]:
    """`memory/<process>_bytes` by process name; processes that are gone are absent."""
    found = {name: resident_bytes(pid) for name, pid in pids.items()}
    return {f"memory/{name}_bytes": float(size) for name, size in found.items() if size is not None}
