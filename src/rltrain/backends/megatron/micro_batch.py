"""A packed micro-batch and what this rank computes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from rltrain.backends.megatron.context_parallel import (
    ContextAttention,
    PairSplit,
    all_pairs,
    find_runs,
    split_pairs,
    split_rows,
)
from rltrain.backends.megatron.modules import Layout, make_layout
from rltrain.backends.megatron.trainable import Trainable
from rltrain.backends.megatron.varlen_kernel import has_kernel
from rltrain.data.packing import count_rows, pack
from rltrain.types.batch import OptimizerStep, PackedRows, RolloutBatch


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Rows that this rank computes, and pairs that it scores: all, or its part where sequences are split."""

    tokens_T: Tensor
    positions_T: Tensor
    layout: Layout
    row_P: Tensor
    target_P: Tensor
    pairs: PairSplit | None
    """How the pairs are spread over the context ranks; None where they aren't."""


class MicroBatch:
    """Samples of a batch; none of them make a filler. Rows are packed when they are first needed, and once."""

    def __init__(self, batch: RolloutBatch, numbers: Sequence[int], parts: Trainable, *, least_rows: int = 0) -> None:
        self.batch, self.numbers, self._parts, self._least_rows = batch, numbers, parts, least_rows

    @cached_property
    def rows(self) -> PackedRows:
        """The whole micro-batch, alike on all ranks that share it."""
        place = self._parts.place
        # Ranks that split the rows pad their own parts.
        multiple = place.row_multiple if place.context_group.size() == 1 else 1
        return pack(
            self.batch,
            self.numbers,
            pad_to=multiple,
            least_rows=self._least_rows,
            share_prompts=self._parts.share_prompts,
        )

    @cached_property
    def share(self) -> Share:
        rows, parts = self.rows, self._parts
        kernel = has_kernel(parts.device, parts.dtype)
        if parts.place.context_group.size() > 1:
            return _part(rows, parts, kernel=kernel)
        layout = make_layout(rows, device=parts.device, kernel=kernel)
        return _share(rows.tokens_T, rows.positions_T, layout, rows.row_P, rows.target_P, None, parts)

    @property
    def num_rows(self) -> int:
        """That are computed, padding included, by all ranks that share it."""
        return self.share.tokens_T.size(0) * self._parts.place.context_group.size()

    def gathered(self, own_P: Tensor) -> Tensor:
        """What this rank found for the pairs of its share -> the same for all pairs [P], on every context rank."""
        pairs = self.share.pairs
        return own_P if pairs is None else all_pairs(own_P, pairs, self._parts.place.context_group)


def micro_batches_of(batch: RolloutBatch, step: OptimizerStep, parts: Trainable) -> list[MicroBatch]:
    """This rank's."""
    mine = step.micro_batches[parts.place.data_rank]
    if not parts.place.equal_rows:
        return [MicroBatch(batch, numbers, parts) for numbers in mine]
    count = partial(count_rows, batch, share_prompts=parts.share_prompts)
    return [
        MicroBatch(batch, numbers, parts, least_rows=max(count(other) for other in at_once))
        for numbers, at_once in zip(mine, zip(*step.micro_batches, strict=True), strict=True)
    ]


def _part(rows: PackedRows, parts: Trainable, *, kernel: bool) -> Share:
    place, group = parts.place, parts.place.context_group
    split = split_rows(rows, ranks=group.size(), multiple=place.row_multiple)
    runs = find_runs(rows, split, rank=place.context_rank)
    layout = Layout(context=ContextAttention(runs, group=group, width=split.width, device=parts.device, kernel=kernel))
    own = split.rows(place.context_rank)
    tokens_T, positions_T = np.zeros(split.width, np.int32), np.arange(split.width, dtype=np.int32)
    tokens_T[: len(own)], positions_T[: len(own)] = rows.tokens_T[own], rows.positions_T[own]
    pairs = split_pairs(rows, split, rank=place.context_rank, ranks=group.size())
    return _share(tokens_T, positions_T, layout, pairs.row, rows.target_P[pairs.own], pairs, parts)


def _share(
    tokens_T: np.ndarray,
    positions_T: np.ndarray,
    layout: Layout,
    row_P: np.ndarray,
    target_P: np.ndarray,
    pairs: PairSplit | None,
    parts: Trainable,
) -> Share:
    return Share(
        torch.from_numpy(tokens_T).to(parts.device, torch.int64),
        torch.from_numpy(positions_T).to(parts.device),
        layout,
        torch.from_numpy(row_P).to(parts.device),
        torch.from_numpy(target_P).to(parts.device),
        pairs,
    )
