"""One of Megatron's parameters: the Hugging Face tensors it is made of, and how tensor-parallel ranks share it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rltrain.checkpoint.hf_reader import Sliceable

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """Each rank has a slice of every part along `dim`; all of every part where `dim` is None.

    Where ranks don't divide a part's length, the last ones are filled up with zeros, which `whole` leaves out.
    """

    parts: Mapping[str, Shape]
    """Hugging Face names and whole shapes."""
    dim: int | None = None
    pieces: int = 1
    """Matrices that each part holds one above another, all of them sliced."""
    groups: int | None = None
    """The rows of the parts lie side by side for each of so many groups of heads; one part above another if None."""
    dtype: torch.dtype | None = None
    """Where it isn't the model's."""

    def shard(self, sources: Mapping[str, Sliceable], *, rank: int, ranks: int) -> Tensor:
        """A rank's parameter from the whole tensors; no more of them is read than that."""
        return self._joined([self._slice(sources[name], span, rank, ranks) for name, span in self._spans()], ranks)

    def whole(self, shards: Sequence[Tensor]) -> dict[str, Tensor]:
        """The Hugging Face tensors from all ranks' parameters; views where there is one rank."""
        if self.dim is None:
            shards = shards[:1]
        by_rank = [self._separated(shard, len(shards)) for shard in shards]
        found: dict[str, list[Tensor]] = {}
        for place, (name, (start, end)) in enumerate(self._spans()):
            slices = [pieces[place] for pieces in by_rank]
            dim = self.dim or 0
            whole = slices[0] if len(slices) == 1 else torch.cat(slices, dim)
            found.setdefault(name, []).append(whole.narrow(dim, 0, end - start))
        return {name: pieces[0] if len(pieces) == 1 else torch.cat(pieces) for name, pieces in found.items()}

    def placed(self, shard: Tensor, *, rank: int, ranks: int) -> Iterator[tuple[str, Shape, Tensor]]:
        """What a rank's parameter holds of the Hugging Face tensors: name, where it begins there, and the values.

        Zeros that fill the last ranks up are left out.
        """
        if self.dim is None:
            ranks, rank = 1, 0
        for (name, (start, end)), piece in zip(self._spans(), self._separated(shard, ranks), strict=True):
            dim = self.dim or 0
            length = -(-(end - start) // ranks)
            first, last = (min(start + number * length, end) for number in (rank, rank + 1))
            if first < last:
                offset = [0] * len(self.parts[name])
                offset[dim] = first
                yield name, tuple(offset), piece.narrow(dim, 0, last - first)

    def _spans(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Of each piece, its tensor and where it lies there along `dim`."""
        for name, shape in self.parts.items():
            length = shape[self.dim or 0] // self.pieces
            yield from ((name, (piece * length, (piece + 1) * length)) for piece in range(self.pieces))

    def _slice(self, source: Sliceable, span: tuple[int, int], rank: int, ranks: int) -> Tensor:
        start, end = span
        if self.dim is None or (ranks == 1 and self.pieces == 1):
            return source[:]
        length = -(-(end - start) // ranks)
        first, last = (min(start + number * length, end) for number in (rank, rank + 1))
        found = source[first:last] if self.dim == 0 else source[:, first:last]
        if last - first == length:
            return found
        missing = list(found.shape)
        missing[self.dim] = length - (last - first)
        return torch.cat([found, found.new_zeros(missing)], self.dim)

    def _joined(self, pieces: Sequence[Tensor], ranks: int) -> Tensor:
        if len(pieces) == 1:
            return pieces[0]
        if self.groups is None:
            return torch.cat(list(pieces))
        grouped = [piece.reshape(self.groups // ranks, -1, *piece.shape[1:]) for piece in pieces]
        return torch.cat(grouped, 1).reshape(-1, *pieces[0].shape[1:])

    def _separated(self, shard: Tensor, ranks: int) -> list[Tensor]:
        """The inverse of `_joined`."""
        lengths = [(end - start) // (ranks if self.dim == 0 else 1) for _, (start, end) in self._spans()]
        if len(lengths) == 1:
            return [shard]
        if self.groups is None:
            return list(shard.split(lengths))
        groups = self.groups // ranks
        grouped = shard.reshape(groups, -1, *shard.shape[1:]).split([length // groups for length in lengths], 1)
        return [piece.reshape(-1, *shard.shape[1:]) for piece in grouped]
