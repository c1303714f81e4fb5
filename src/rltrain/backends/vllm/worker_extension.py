"""What rltrain adds to vLLM's worker: methods that the engine calls in the process that holds the model."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import torch

from rltrain.backends.vllm.owner_watch import die_with
from rltrain.backends.vllm.reload import Reload, missing_names, start_reload
from rltrain.weight_sync.slots import ReadableSlot, attach

TensorRow = tuple[str, str, Sequence[int], int]
"""Name, dtype, shape and offset within the bucket."""

if multiprocessing.parent_process() is not None:  # not where tests import it
    die_with(os.getppid())


class WorkerExtension:
    """Mixed into the worker's class by `worker_extension_cls`. Arguments are plain: they cross processes as msgpack."""

    model_runner: Any
    _buckets: list[list[TensorRow]]
    _slots: list[ReadableSlot]
    _reload: Reload | None = None

    def rltrain_die_with(self, pid: int) -> int:
        """Ties this process to the engine's owner; its own process id."""
        die_with(pid)
        return os.getpid()

    def rltrain_attach(self, buckets: list[list[TensorRow]], slots: list[str]) -> list[str]:
        """Maps the shared slots; the checkpoint names that the model needs and the plan lacks."""
        planned = {row[0] for bucket in buckets for row in bucket}
        missing = missing_names(self.model_runner.get_model(), planned)
        if not missing:
            self._buckets = buckets
            self._slots = [attach(path) for path in slots]
        return missing

    def rltrain_load(self, index: int, verify: bool) -> int | None:
        """Loads a bucket, the first one opening the sync and the last one closing it; its checksum if asked."""
        rows, slot = self._buckets[index], self._slots[index % len(self._slots)]
        found = slot.checksum(_num_bytes(rows)) if verify else None
        if index == 0:
            self._reload = start_reload(self.model_runner.get_model(), self.model_runner.model_config)
        assert self._reload is not None, f"bucket {index} came before bucket 0"
        # The slot is written again while tensors of layers that aren't complete yet are kept.
        shared = len(self._buckets) == 1 or not self._reload.keeps_tensors
        data = slot.tensor if shared else slot.tensor.clone()
        self._reload.load(_tensors(rows, data))
        if index == len(self._buckets) - 1:
            self._reload.finish()
            self._reload = None
        slot.finish()
        return found

    def rltrain_memory(self) -> dict[str, int]:
        """Bytes of GPU memory: `used` of the whole device by anyone, `peak` of this process's tensors so far."""
        free, total = torch.cuda.mem_get_info()
        return {"used": total - free, "peak": torch.cuda.max_memory_allocated()}


def _tensors(rows: list[TensorRow], data: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    return [(name, _tensor(row, data)) for row in rows for name in row[:1]]


def _tensor(row: TensorRow, data: torch.Tensor) -> torch.Tensor:
    _, dtype_name, shape, offset = row
    dtype: torch.dtype = getattr(torch, dtype_name)
    size = torch.Size(shape)
    return data[offset : offset + size.numel() * dtype.itemsize].view(dtype).view(size)


def _num_bytes(rows: list[TensorRow]) -> int:
    _, dtype_name, shape, offset = rows[-1]
    return offset + torch.Size(shape).numel() * getattr(torch, dtype_name).itemsize
