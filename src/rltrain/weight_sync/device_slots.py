"""GPU memory that weights pass through: one process owns it, others on the same GPU map it by CUDA's IPC handles."""

from __future__ import annotations

import base64
import json
from typing import Any

import torch

from rltrain.weight_sync.checksum import WORD_BYTES, device_checksum

PREFIX = "cuda-ipc:"
"""Begins the paths of such slots; what follows is JSON with torch's handle of the memory."""


class DeviceSlot:
    """The writer's side. The memory lives as long as this object."""

    def __init__(self, num_bytes: int) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        self.tensor = torch.zeros(_whole_words(num_bytes), dtype=torch.uint8, device=device)
        """The bytes, writable."""
        storage: Any = self.tensor.untyped_storage()  # torch doesn't publish how memory is shared
        self.path = PREFIX + _encoded(storage._share_cuda_())

    def checksum(self, num_bytes: int) -> int:
        return device_checksum(self.tensor[: _whole_words(num_bytes)])

    def finish(self) -> None:
        """Returns when all that was written is there for readers."""
        torch.cuda.current_stream().synchronize()

    def close(self) -> None:
        """Readers that attached keep the memory mapped until they end."""
        self.tensor = torch.empty(0, dtype=torch.uint8)


class AttachedDeviceSlot:
    """The reader's side."""

    def __init__(self, path: str) -> None:
        device, *rest = _decoded(path.removeprefix(PREFIX))
        storage_type: Any = torch.UntypedStorage
        storage = storage_type._new_shared_cuda(torch.cuda.current_device(), *rest)
        assert device == torch.cuda.current_device(), "the slot lies on another GPU than this process computes on"
        self.tensor = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        """The bytes; to be read only."""

    def checksum(self, num_bytes: int) -> int:
        return device_checksum(self.tensor[: _whole_words(num_bytes)])

    def finish(self) -> None:
        """Returns when all that was read is no longer needed in the slot."""
        torch.cuda.current_stream().synchronize()


def _whole_words(num_bytes: int) -> int:
    return -(-num_bytes // WORD_BYTES) * WORD_BYTES


def _encoded(handle: tuple[Any, ...]) -> str:
    """Bytes as {"b64": ...}; the rest are numbers, truth values and None."""
    return json.dumps(
        [{"b64": base64.b64encode(part).decode()} if isinstance(part, bytes) else part for part in handle]
    )


def _decoded(text: str) -> list[Any]:
    return [_decoded_part(part) for part in json.loads(text)]


def _decoded_part(part: dict[str, str] | int | None) -> Any:
    return base64.b64decode(part["b64"]) if isinstance(part, dict) else part
