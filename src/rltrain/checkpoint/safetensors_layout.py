"""What stands at the head of a safetensors file, so that one can be written as its values come.

safetensors' own `save_file` wants all of a file's values at once and copies them once more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]
CHUNK_BYTES = 2**22
DTYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.uint8: "U8",
}
"""Names that the files have for types."""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    name: str
    shape: Shape
    dtype: torch.dtype

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> TensorFacts:
        return cls(name, tuple(tensor.shape), tensor.dtype)

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def aligned(tensors: Sequence[TensorFacts]) -> list[TensorFacts]:
    """Wide types first: readers can't map a value that doesn't begin at a multiple of its width."""
    return sorted(tensors, key=lambda facts: -facts.dtype.itemsize)


def header(tensors: Sequence[TensorFacts], metadata: Mapping[str, str]) -> bytes:
    """Comes before the values, which follow without gaps, in the order of `aligned`."""
    ends = list(accumulate((facts.num_bytes for facts in tensors), initial=0))
    tree: dict[str, Any] = {"__metadata__": dict(metadata)}
    for number, facts in enumerate(tensors):
        assert ends[number] % facts.dtype.itemsize == 0, f"{facts.name} isn't in the order of aligned()"
        offsets = [ends[number], ends[number + 1]]
        tree[facts.name] = {"dtype": DTYPES[facts.dtype], "shape": list(facts.shape), "data_offsets": offsets}
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def chunks(values: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor on the host, little by little."""
    array: Any = values.contiguous().view(-1).view(torch.uint8).numpy()  # its stubs leave the buffer out
    data = memoryview(array)
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]
