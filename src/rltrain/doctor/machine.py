"""The machine: Python, cores, memory, shared memory, disk, GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from rltrain.doctor.finding import Finding, Level

GIB = 2**30
LOW_MEMORY_BYTES = 6 * GIB
"""The quick start's processes together stay below this."""
LOW_SHARED_BYTES = GIB
"""Ray's object store and the buffers of weight sync, at their defaults, with some room."""
LOW_DISK_BYTES = 2 * GIB
TESTED_PYTHONS = ((3, 11), (3, 12))
NVIDIA_SMI_TIMEOUT_S = 20


def gpu_names() -> list[str]:
    """Name and memory of each GPU, as the driver's own tool gives them; empty without the tool or a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def check_python(version: tuple[int, int, int]) -> Finding:
    found = ".".join(map(str, version))
    if version[:2] in TESTED_PYTHONS:
        return Finding(subject="Python", level=Level.FINE, found=found, remark=sys.executable)
    tested = " and ".join(".".join(map(str, one)) for one in TESTED_PYTHONS)
    return Finding(subject="Python", level=Level.WARNING, found=found, remark=f"untested: the tests know {tested}")


def check_space(
    subject: str, num_bytes: int, *, low_bytes: int, remark: str = "", command: str | None = None
) -> Finding:
    """An amount of memory or disk, a warning where it is below `low_bytes`."""
    found = f"{num_bytes / GIB:.1f} GiB"
    if num_bytes >= low_bytes:
        return Finding(subject=subject, level=Level.FINE, found=found, remark=remark)
    little = f"little: {low_bytes / GIB:.0f} GiB are better"
    return Finding(subject=subject, level=Level.WARNING, found=found, remark=little, command=command)


def check_gpus(names: list[str]) -> Finding:
    found = f"{len(names)} x {names[0]}" if names else "none"
    return Finding(subject="GPUs", level=Level.FINE, found=found, remark="" if names else "everything runs on the CPU")


def check_machine(gpus: list[str], *, directory: Path) -> Iterator[Finding]:
    """Every finding about the machine.

    gpus: as `gpu_names` gives them; directory: where runs would be written.
    """
    yield check_python(sys.version_info[:3])
    cores = len(os.sched_getaffinity(0))
    yield Finding(subject="CPU cores", level=Level.FINE, found=str(cores))
    memory = psutil.virtual_memory()
    yield check_space("memory, free", memory.available, low_bytes=LOW_MEMORY_BYTES)
    yield check_space(
        "/dev/shm, free",
        shutil.disk_usage("/dev/shm").free,
        low_bytes=LOW_SHARED_BYTES,
        command="mount -o remount,size=2G /dev/shm (in a container, start it with --shm-size=2g)",
    )
    yield check_space("disk, free", shutil.disk_usage(directory).free, low_bytes=LOW_DISK_BYTES, remark=str(directory))
    yield check_gpus(gpus)
