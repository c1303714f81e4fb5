"""What this machine offers, found without torch or CUDA libraries."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rltrain.config.cluster import ClusterConfig

DEVICE = re.compile(r"nvidia[0-9]+")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of version 2 and 1."""


@dataclass(frozen=True, slots=True)
class Machine:
    device: Literal["cpu", "cuda"]
    """Where models live."""
    num_gpus: int
    """GPUs that the run may use; 0 on a CPU."""
    gpu_memory_bytes: int | None = None
    """Of the smallest GPU; None where it isn't known, and on a CPU."""
    host_memory_bytes: int | None = None
    """Of this machine, within this container; None where it isn't known."""


def this_machine(config: ClusterConfig) -> Machine:
    """The device and the GPUs that the config picks; what can't be had is told by `rules.check`."""
    num_gpus = visible_gpus() if config.gpus is None else config.gpus
    if config.device == "cpu" or (config.device == "auto" and num_gpus == 0):
        return Machine("cpu", 0, host_memory_bytes=host_memory_bytes())
    gpu_memory = config.gpu_memory_bytes or smallest_gpu_bytes()
    return Machine("cuda", num_gpus, gpu_memory, host_memory_bytes=host_memory_bytes())


def host_memory_bytes(*, limits: tuple[Path, ...] = CGROUP_LIMITS) -> int:
    """Memory of this machine, or what its container may have of it; in `limits` a container's limit is written."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in limits:
        try:
            found.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such version of cgroups, or `max`
            continue
    return min(found)


@functools.cache
def smallest_gpu_bytes() -> int | None:
    """Memory of the smallest NVIDIA GPU of this machine, as `nvidia-smi` tells it; None where there is none to ask."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    sizes = [int(line) for line in answer.split() if line.isdigit()]
    return min(sizes) * 2**20 if sizes else None


def visible_gpus(*, devices: Path = Path("/dev")) -> int:
    """NVIDIA GPUs of this machine, as far as CUDA_VISIBLE_DEVICES lets them be seen."""
    count = sum(1 for path in devices.glob("nvidia*") if DEVICE.fullmatch(path.name))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return count
    names = [name.strip() for name in chosen.split(",")]
    valid = names[: next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))]  # as CUDA reads it
    return min(count, len(valid))
