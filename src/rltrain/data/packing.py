"""Puts samples behind one another and lists the pairs to score; pure numpy, without a loop over samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rltrain.types.batch import Offsets, PackedRows, Ragged, RolloutBatch

T = TypeVar("T", bound=np.generic)
FILLER_LENGTH = 2
"""Rows of the sequence that stands for an empty micro-batch."""


def pack(batch: RolloutBatch, sample_numbers: Sequence[int], *, pad_to: int = 1) -> PackedRows:
    """The samples' rows [T] in the given order, and a pair for every response token.

    The row of a token scores the next one, so a response's last token is scored and needs no row. `pad_to` makes T a
    multiple of it with a sequence that has no pairs; without samples there is only such a one. Raises ValueError for an
    empty prompt.
    """
    numbers = np.asarray(sample_numbers, np.int64)
    prompt_N = batch.prompt_ids.lengths[numbers]
    response_N = batch.response_ids.lengths[numbers]
    if len(numbers) and prompt_N.min() == 0:
        raise ValueError(f"sample {numbers[prompt_N.argmin()]}: the prompt is empty, so nothing predicts its first id")
    fed_N = np.maximum(response_N - 1, 0)
    total_N = prompt_N + fed_N
    num_rows = int(total_N.sum())
    num_padding = -num_rows % pad_to if num_rows else -(-FILLER_LENGTH // pad_to) * pad_to
    lengths = np.append(total_N, num_padding) if num_padding else total_N
    cu_seqlens = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    starts_N = cu_seqlens[: len(numbers)]
    tokens_T = np.zeros(num_rows + num_padding, np.int32)
    tokens_T[_ranges(starts_N, prompt_N)] = _rows(batch.prompt_ids, numbers)
    tokens_T[_ranges(starts_N + prompt_N, fed_N)] = _rows(batch.response_ids, numbers, counts=fed_N)
    return PackedRows(
        tokens_T=tokens_T,
        positions_T=_ranges(np.zeros_like(lengths), lengths).astype(np.int32),
        cu_seqlens=cu_seqlens.astype(np.int32),
        row_P=_ranges(starts_N + prompt_N - 1, response_N),
        target_P=_rows(batch.response_ids, numbers).astype(np.int64),
        sample_P=np.repeat(numbers, response_N),
        t_P=_ranges(np.zeros_like(response_N), response_N),
    )


def gather(column: Ragged[T], rows: PackedRows) -> npt.NDArray[T]:
    """A per-token column's values at the pairs [P]."""
    return column.values[column.offsets[rows.sample_P] + rows.t_P]


def _rows(column: Ragged[T], numbers: Offsets, *, counts: Offsets | None = None) -> npt.NDArray[T]:
    """The first `counts` values of these rows, or all, behind one another."""
    return column.values[_ranges(column.offsets[numbers], column.lengths[numbers] if counts is None else counts)]


def _ranges(starts: Offsets, lengths: Offsets) -> Offsets:
    """start, start + 1, ... for each length, behind one another."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
