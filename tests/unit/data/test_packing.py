"""Rows and scored pairs of packed samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rltrain.data.packing import count_rows, gather, pack
from rltrain.types.batch import Ragged, RolloutBatch


def make_batch(prompts: list[list[int]], responses: list[list[int]]) -> RolloutBatch:
    def column(rows: list[list[int]], dtype: type) -> Ragged:
        return Ragged.of([np.asarray(row, dtype) for row in rows], dtype)

    numbers = [[100 * i + t for t in range(len(row))] for i, row in enumerate(responses)]
    return RolloutBatch(
        step=0,
        version=0,
        prompt_ids=column(prompts, np.int32),
        response_ids=column(responses, np.int32),
        loss_mask=column([[1] * len(row) for row in responses], np.bool_),
        rollout_logprobs=column(numbers, np.float32),
        advantages=column(numbers, np.float32),
        group_B=np.zeros(len(prompts), np.int32),
    )


def test_lgp_01_rows_score_the_next_token_of_their_own_sequence() -> None:
    rows = pack(make_batch([[10], [20]], [[11, 12], [21]]), [0, 1])
    assert rows.tokens_T[rows.rows_E].tolist() == [10, 11, 20]  # a last token has nothing to predict
    assert rows.cu_seqlens.tolist() == [0, 2, 3]
    assert rows.positions_T[rows.rows_E].tolist() == [0, 1, 0]
    scored = zip(rows.tokens_T[rows.row_P].tolist(), rows.target_P.tolist(), strict=True)
    assert list(scored) == [(10, 11), (11, 12), (20, 21)]


def test_samples_of_one_prompt_share_its_rows() -> None:
    batch = make_batch([[1, 2], [1, 2], [3, 4]], [[5, 6, 7], [8, 9], [5]])
    rows = pack(batch, [0, 1, 2])
    assert len(rows.tokens_T) == 2 + 2 + 2 + 1 + 0
    sequences = [rows.rows_E[a:b] for a, b in zip(rows.cu_seqlens[:-1], rows.cu_seqlens[1:], strict=True)]
    assert [rows.tokens_T[sequence].tolist() for sequence in sequences] == [[1, 2, 5, 6], [1, 2, 8], [3, 4]]
    assert all(rows.positions_T[sequence].tolist() == list(range(len(sequence))) for sequence in sequences)
    assert sequences[0][:2].tolist() == sequences[1][:2].tolist()
    assert rows.tokens_T[rows.row_P].tolist() == [2, 5, 6, 2, 8, 4]
    assert rows.target_P.tolist() == [5, 6, 7, 8, 9, 5]


def test_sharing_changes_neither_sequences_nor_pairs() -> None:
    batch = make_batch([[1, 2], [3], [1, 2], [3]], [[5, 6], [7], [], [8, 9, 10]])
    shared, apart = (pack(batch, [0, 1, 2, 3], pad_to=4, share_prompts=share) for share in (True, False))
    for of in (lambda r: r.tokens_T[r.rows_E], lambda r: r.positions_T[r.rows_E], lambda r: r.tokens_T[r.row_P]):
        plain = [of(rows)[: int(rows.cu_seqlens[4])].tolist() for rows in (shared, apart)]
        assert plain[0] == plain[1]
    assert len(shared.tokens_T) < len(apart.tokens_T)
    assert shared.target_P.tolist() == apart.target_P.tolist()


def test_lgp_04_columns_are_gathered_by_sample_and_place() -> None:
    batch = make_batch([[1, 2], [3], [4]], [[5], [6, 7], [8, 9, 10]])
    rows = pack(batch, [2, 0])
    assert gather(batch.rollout_logprobs, rows).tolist() == [200.0, 201.0, 202.0, 0.0]
    assert gather(batch.response_ids, rows).tolist() == rows.target_P.tolist() == [8, 9, 10, 5]


def test_no_samples_make_a_filler_without_pairs() -> None:
    rows = pack(make_batch([[1]], [[2]]), [])
    assert len(rows.tokens_T) == 2 and len(rows.row_P) == 0


@pytest.mark.parametrize("numbers", [[0], [0, 1], []])
def test_padding_makes_a_multiple_and_is_never_scored(numbers: list[int]) -> None:
    rows = pack(make_batch([[1], [2]], [[2, 3], [4]]), numbers, pad_to=4)
    plain = pack(make_batch([[1], [2]], [[2, 3], [4]]), numbers)
    assert len(rows.tokens_T) % 4 == 0 and rows.cu_seqlens[-1] == len(rows.rows_E)
    assert rows.row_P.tolist() == plain.row_P.tolist()


@pytest.mark.parametrize("numbers", [[0, 1], []])
def test_a_micro_batch_can_have_as_many_rows_as_another(numbers: list[int]) -> None:
    batch = make_batch([[1], [1]], [[2, 3], [4]])
    rows = pack(batch, numbers, pad_to=2, least_rows=7)
    assert len(rows.tokens_T) == 8 and len(rows.row_P) == (3 if numbers else 0)
    assert count_rows(batch, numbers) == (2 if numbers else 0)
    assert count_rows(batch, numbers, share_prompts=False) == (3 if numbers else 0)


def test_an_empty_prompt_is_named() -> None:
    with pytest.raises(ValueError, match="sample 1: the prompt is empty"):
        pack(make_batch([[1], []], [[2], [3]]), [0, 1])


def test_a_response_may_be_empty() -> None:
    batch = make_batch([[1, 2], [3]], [[], [4]])
    rows = pack(replace(batch), [0, 1])
    assert rows.tokens_T[rows.row_P].tolist() == [3]
