"""Shared memory that weights pass through. It has no name in a file system, so nothing outlives its processes."""

from __future__ import annotations

import mmap
import os
from typing import Protocol

import torch

from rltrain.weight_sync.checksum import checksum
from rltrain.weight_sync.device_slots import PREFIX, AttachedDeviceSlot


class WritableSlot(Protocol):
    """What the sender needs of a slot, in shared memory or on a GPU."""

    tensor: torch.Tensor

    @property
    def path(self) -> str: ...

    def checksum(self, num_bytes: int) -> int: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class ReadableSlot(Protocol):
    """What a reader needs of a slot."""

    tensor: torch.Tensor

    def checksum(self, num_bytes: int) -> int: ...

    def finish(self) -> None: ...


class Slot:
    """The writer's side: anonymous memory, reachable for other processes of this user by `path` while it is open."""

    def __init__(self, num_bytes: int) -> None:
        self._descriptor = os.memfd_create("rltrain-weights", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, num_bytes)
        self._memory = mmap.mmap(self._descriptor, num_bytes)
        self.tensor = torch.frombuffer(self._memory, dtype=torch.uint8)
        """The bytes, writable."""

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def view(self, num_bytes: int) -> memoryview:
        return memoryview(self._memory)[:num_bytes]

    def checksum(self, num_bytes: int) -> int:
        return checksum(self.view(num_bytes))

    def finish(self) -> None:
        """Copies from a GPU are through when they return, and so is all else."""

    def close(self) -> None:
        """Readers that attached keep their mapping; the memory goes with the last of them."""
        os.close(self._descriptor)


class AttachedSlot:
    """The reader's side."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        self.tensor = torch.frombuffer(self._memory, dtype=torch.uint8)
        """The bytes; to be read only."""

    def view(self, num_bytes: int) -> memoryview:
        return memoryview(self._memory)[:num_bytes]

    def checksum(self, num_bytes: int) -> int:
        return checksum(self.view(num_bytes))

    def finish(self) -> None:
        """Copies to a GPU are through when they return: the memory isn't pinned."""


def attach(path: str) -> ReadableSlot:
    """The slot that a sender's path stands for."""
    return AttachedDeviceSlot(path) if path.startswith(PREFIX) else AttachedSlot(path)
