"""A model's tensors on disk in pieces: each process writes those that it has, and any other layout reads what it needs.

A file is safetensors; its metadata say of each piece which tensor it is part of, how large that is and where the piece
lies in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rltrain.checkpoint.manifest import Damaged, FileFacts
from rltrain.checkpoint.safetensors_layout import Shape, TensorFacts, chunks, header

SUFFIX = ".safetensors"
METADATA = "pieces"


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor."""

    kind: str
    """What of the tensor it is, e.g. `weight` or `exp_avg`."""
    name: str
    shape: Shape
    """The whole tensor's."""
    offset: Shape
    """Where the box begins."""
    values: Tensor


def write_pieces(path: Path, pieces: Sequence[Piece]) -> FileFacts:
    """What was written. Raises OSError."""
    ordered = sorted(pieces, key=lambda piece: -piece.values.dtype.itemsize)  # as `aligned` has it
    places = [
        {"kind": piece.kind, "name": piece.name, "shape": piece.shape, "offset": piece.offset} for piece in ordered
    ]
    tensors = [TensorFacts.of(str(number), piece.values) for number, piece in enumerate(ordered)]
    digest = hashlib.sha256()
    with path.open("wb") as file:
        parts = (chunk for piece in ordered for chunk in chunks(piece.values))
        for part in chain([header(tensors, {METADATA: json.dumps(places)})], parts):
            file.write(part)
            digest.update(part)
        return FileFacts(file.tell(), digest.hexdigest())


@dataclass(frozen=True, slots=True)
class _Held:
    """A piece in a file."""

    reader: Any
    key: str
    shape: Shape
    offset: Shape

    def read(self, start: Shape, end: Shape) -> Tensor:
        return self.reader.get_slice(self.key)[tuple(slice(a, b) for a, b in zip(start, end, strict=True))]


class SavedTensor:
    """Read as far as it is sliced, by `[:]`, `[a:b]` or `[:, a:b]`."""

    def __init__(self, shape: Shape, pieces: Sequence[_Held], dtype: torch.dtype) -> None:
        self.shape, self._pieces, self._dtype = shape, pieces, dtype

    def __getitem__(self, index: Any, /) -> Tensor:
        wanted: tuple[slice, ...] = index if isinstance(index, tuple) else (index,)  # pyright: ignore
        spans = [one.indices(size)[:2] for one, size in zip(wanted, self.shape, strict=False)]
        spans += [(0, size) for size in self.shape[len(spans) :]]
        found = torch.empty([max(0, end - start) for start, end in spans], dtype=self._dtype)
        for piece in self._pieces:
            first = tuple(max(a, start) for a, (start, _) in zip(piece.offset, spans, strict=True))
            ends = zip(piece.offset, piece.shape, spans, strict=True)
            last = tuple(min(a + size, end) for a, size, (_, end) in ends)
            if all(a < b for a, b in zip(first, last, strict=True)):
                place = tuple(slice(a - s, b - s) for a, b, (s, _) in zip(first, last, spans, strict=True))
                found[place] = piece.read(_less(first, piece.offset), _less(last, piece.offset))
        return found


class SavedTensors:
    """All that a directory's files hold. Raises Damaged where one can't be read, or the pieces aren't the whole."""

    def __init__(self, directory: Path) -> None:
        self._pieces: dict[tuple[str, str], list[_Held]] = {}
        self._shapes: dict[tuple[str, str], Shape] = {}
        for path in sorted(directory.glob(f"*{SUFFIX}")):
            self._open(path)
        for (kind, name), pieces in self._pieces.items():
            whole, found = math.prod(self._shapes[kind, name]), sum(math.prod(piece.shape) for piece in pieces)
            if whole != found:
                raise Damaged(f"{kind} of {name} has {found} of {whole} values in {directory}")

    def shapes(self, kind: str) -> Mapping[str, Shape]:
        """By the tensors' names."""
        return {name: shape for (of, name), shape in self._shapes.items() if of == kind}

    def part(self, kind: str, name: str) -> SavedTensor:
        pieces = self._pieces[kind, name]
        like = pieces[0].read((0,) * len(pieces[0].shape), tuple(min(1, size) for size in pieces[0].shape))
        return SavedTensor(self._shapes[kind, name], pieces, like.dtype)

    def _open(self, path: Path) -> None:
        try:
            reader: Any = safe_open(path, framework="pt")
            places = json.loads(reader.metadata()[METADATA])
            for key, place in enumerate(places):
                tensor = (str(place["kind"]), str(place["name"]))
                held = _Held(
                    reader, str(key), tuple(reader.get_slice(str(key)).get_shape()), tuple(map(int, place["offset"]))
                )
                shape = tuple(map(int, place["shape"]))
                if self._shapes.setdefault(tensor, shape) != shape:
                    raise Damaged(f"{path.name} has {tensor[1]} as part of another shape than other files")
                self._pieces.setdefault(tensor, []).append(held)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{path.name} can't be read: {error}") from error


def _less(place: Shape, offset: Shape) -> Shape:
    return tuple(a - b for a, b in zip(place, offset, strict=True))
