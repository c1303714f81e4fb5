"""A step's samples in columns: what the object store, the rollout files and the trainer hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from rltrain.types.sample import Floats, Ids, Mask

Offsets: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Ragged(Generic[T]):
    """Rows of different lengths behind one another: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: npt.NDArray[T]
    offsets: Offsets

    def __post_init__(self) -> None:
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.values):
            raise ValueError(f"offsets {self.offsets[0]}..{self.offsets[-1]} don't span {len(self.values)} values")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[T]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    def sums(self) -> npt.NDArray[np.float64]:
        """Sum of each row; 0 for an empty one."""
        totals = np.concatenate([np.zeros(1), np.cumsum(self.values, dtype=np.float64)])
        return totals[self.offsets[1:]] - totals[self.offsets[:-1]]

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[T]], dtype: type[T]) -> Ragged[T]:
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        values = np.concatenate(rows).astype(dtype, copy=False) if len(rows) else np.zeros(0, dtype)
        return cls(values, offsets)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutBatch:
    """B samples; per-token columns have one entry for each response id.

    `loss_mask` is already false for samples that must not be trained (failed, aborted, timed out).
    """

    step: int
    version: int
    """Weights version that sampled it."""
    prompt_ids: Ragged[np.int32]
    response_ids: Ragged[np.int32]
    loss_mask: Ragged[np.bool_]
    rollout_logprobs: Ragged[np.float32]
    advantages: Ragged[np.float32]
    group_B: npt.NDArray[np.int32]
    """Number of the sample's group within the step; groups are adjacent and in order."""
    old_logprobs: Ragged[np.float32] | None = None
    """Under the trainer's weights before the first update; `rollout_logprobs` are not a substitute."""
    reference_logprobs: Ragged[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.response_ids)

    @classmethod
    def of_sequence(cls, token_ids: Ids) -> RolloutBatch:
        """One sample whose response is all but the first token, for scoring alone."""
        length = len(token_ids) - 1
        zeros = Ragged(np.zeros(length, np.float32), np.array([0, length]))
        return cls(
            step=0,
            version=0,
            prompt_ids=Ragged[np.int32].of([token_ids[:1]], np.int32),
            response_ids=Ragged[np.int32].of([token_ids[1:]], np.int32),
            loss_mask=Ragged(np.zeros(length, np.bool_), zeros.offsets),
            rollout_logprobs=zeros,
            advantages=zeros,
            group_B=np.zeros(1, np.int32),
        )

    @property
    def total_lengths_B(self) -> Offsets:
        """Tokens of prompt and response."""
        return self.prompt_ids.lengths + self.response_ids.lengths


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What the ranks run before one optimizer step: `micro_batches[rank][k]` are sample numbers of the batch.

    Every rank has the same number of micro-batches; an empty one is a zero-loss filler.
    """

    micro_batches: tuple[tuple[tuple[int, ...], ...], ...]
    num_loss_tokens: int
    """Trainable tokens over all ranks and micro-batches: the loss's denominator."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How one batch is split: optimizer steps, then data-parallel ranks, then micro-batches."""

    steps: tuple[OptimizerStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedRows:
    """One micro-batch: rows, the sequences that they make, and the scored pairs (row, target, sample, t).

    The unit of loss is the pair, not the position: a prompt's last row may be scored for several responses.
    """

    tokens_T: Ids
    positions_T: Ids
    rows_E: Offsets
    """Row of each entry of the sequences: sequences with one prompt share its rows."""
    cu_seqlens: Ids
    """Starts of the sequences and E; sequence i is entries cu_seqlens[i] to cu_seqlens[i + 1]."""
    row_P: npt.NDArray[np.int64]
    """The row whose logits are scored."""
    target_P: npt.NDArray[np.int64]
    """The token they are scored for."""
    sample_P: npt.NDArray[np.int64]
    """Sample number within the batch."""
    t_P: npt.NDArray[np.int64]
    """Place of the target within its response."""

    @property
    def max_seqlen(self) -> int:
        return int(np.diff(self.cu_seqlens).max()) if len(self.cu_seqlens) > 1 else 0


__all__ = ["Floats", "Ids", "Mask", "Offsets", "OptimizerStep", "PackedRows", "Ragged", "RolloutBatch", "StepPlan"]
