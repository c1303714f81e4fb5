"""Proof that the bytes which arrived are those that were sent."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable

import torch

WORD_BYTES = 8
CHUNK_WORDS = 2**23
"""Words that are summed at once: 64 MiB, and as much again for their products."""


def checksum(data: memoryview) -> int:
    """CRC-32 of the bytes."""
    return zlib.crc32(data)


def device_checksum(data: torch.Tensor) -> int:
    """Of uint8 [N], N a multiple of 8, on whatever device: the sum over 8-byte words, each times an odd number of its
    own (1, 3, 5, ...), modulo 2^64.

    An odd factor has an inverse, so a changed word changes the sum; so do two words that trade places, unless they lie
    a power of two apart and differ in few high bits. CRC-32 would need the bytes on the host.
    """
    words = data.view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for start in range(0, len(words), CHUNK_WORDS):
        part = words[start : start + CHUNK_WORDS]
        factors = torch.arange(start, start + len(part), device=data.device).mul_(2).add_(1)
        total += factors.mul_(part).sum()
    return int(total) % 2**64


def tensors_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Of names, types, shapes and values, whatever their order."""
    facts = [f"{name} {tensor.dtype} {tuple(tensor.shape)} {_of_any_size(tensor)}" for name, tensor in tensors]
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:32]


def _of_any_size(tensor: torch.Tensor) -> int:
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    return device_checksum(torch.nn.functional.pad(data, (0, -len(data) % WORD_BYTES)))
