"""Puts samples behind one another, each distinct prompt once, and lists the pairs to score. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rltrain.types.batch import Offsets, PackedRows, Ragged, RolloutBatch

T = TypeVar("T", bound=np.generic)
FILLER_LENGTH = 2
"""Rows of the sequence that stands for an empty micro-batch."""


def pack(
    batch: RolloutBatch,
    sample_numbers: Sequence[int],
    *,
    pad_to: int = 1,
    least_rows: int = 0,
    share_prompts: bool = True,
) -> PackedRows:
    """The samples' rows [T] and a pair for every response token.

    The row of a token scores the next one, so a response's last token is scored and needs no row. With `share_prompts`,
    samples with the same prompt have one set of rows for it. A sequence without pairs makes T a multiple of `pad_to`
    and at least `least_rows`; without samples there is only such a one. Raises ValueError for an empty prompt.
    """
    numbers = np.asarray(sample_numbers, np.int64)
    prompt_N = batch.prompt_ids.lengths[numbers]
    if len(numbers) and prompt_N.min() == 0:
        raise ValueError(f"sample {numbers[prompt_N.argmin()]}: the prompt is empty, so nothing predicts its first id")
    response_N = batch.response_ids.lengths[numbers]
    fed_N = np.maximum(response_N - 1, 0)
    first_U, which_N = _distinct_prompts(batch, numbers) if share_prompts else (np.arange(len(numbers)),) * 2
    # Rows: the distinct prompts, then every response but for its last token, then padding.
    prompt_starts_U = _starts(prompt_N[first_U])
    response_starts_N = prompt_N[first_U].sum() + _starts(fed_N)
    num_rows = int(prompt_N[first_U].sum() + fed_N.sum())
    least_rows = max(least_rows, num_rows or FILLER_LENGTH)
    num_padding = -(-least_rows // pad_to) * pad_to - num_rows
    padding = np.arange(num_padding)
    # A sequence's entries: its prompt's rows, wherever they are, and its own.
    entry_rows_N = np.stack([prompt_starts_U[which_N], response_starts_N], axis=1).reshape(-1)
    entry_lengths_N = np.stack([prompt_N, fed_N], axis=1).reshape(-1)
    rows_E = np.concatenate([_ranges(entry_rows_N, entry_lengths_N), num_rows + padding])
    lengths = np.append(prompt_N + fed_N, num_padding) if num_padding else prompt_N + fed_N
    cu_seqlens = np.append(_starts(lengths), lengths.sum())
    last_prompt_entry_N = cu_seqlens[: len(numbers)] + prompt_N - 1
    return PackedRows(
        tokens_T=np.concatenate(
            [
                _rows(batch.prompt_ids, numbers[first_U]),
                _rows(batch.response_ids, numbers, counts=fed_N),
                np.zeros(num_padding, np.int32),
            ]
        ),
        positions_T=np.concatenate(
            [_ranges(np.zeros_like(first_U), prompt_N[first_U]), _ranges(prompt_N, fed_N), padding]
        ).astype(np.int32),
        rows_E=rows_E,
        cu_seqlens=cu_seqlens.astype(np.int32),
        row_P=rows_E[_ranges(last_prompt_entry_N, response_N)],
        target_P=_rows(batch.response_ids, numbers).astype(np.int64),
        sample_P=np.repeat(numbers, response_N),
        t_P=_ranges(np.zeros_like(response_N), response_N),
    )


def count_rows(batch: RolloutBatch, sample_numbers: Sequence[int], *, share_prompts: bool = True) -> int:
    """Rows that these samples fill, without padding."""
    numbers = np.asarray(sample_numbers, np.int64)
    first_U = _distinct_prompts(batch, numbers)[0] if share_prompts else np.arange(len(numbers))
    fed_N = np.maximum(batch.response_ids.lengths[numbers] - 1, 0)
    return int(batch.prompt_ids.lengths[numbers][first_U].sum() + fed_N.sum())


def _distinct_prompts(batch: RolloutBatch, numbers: Offsets) -> tuple[Offsets, Offsets]:
    """Place among `numbers` of the first sample with each distinct prompt, and which of these each sample has."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(batch.prompt_ids[number].tobytes(), len(places)) for number in numbers]
    which_N = np.array(which, np.int64)
    return np.unique(which_N, return_index=True)[1].astype(np.int64), which_N


def gather(column: Ragged[T], rows: PackedRows) -> npt.NDArray[T]:
    """A per-token column's values at the pairs [P]."""
    return column.values[column.offsets[rows.sample_P] + rows.t_P]


def _starts(lengths: Offsets) -> Offsets:
    """Where each of these begins when they lie behind one another."""
    return np.cumsum(lengths) - lengths


def _rows(column: Ragged[T], numbers: Offsets, *, counts: Offsets | None = None) -> npt.NDArray[T]:
    """The first `counts` values of these rows, or all, behind one another."""
    return column.values[_ranges(column.offsets[numbers], column.lengths[numbers] if counts is None else counts)]


def _ranges(starts: Offsets, lengths: Offsets) -> Offsets:
    """start, start + 1, ... for each length, behind one another."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
