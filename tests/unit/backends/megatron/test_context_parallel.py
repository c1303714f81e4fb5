"""Rows, keys and pairs of the ranks that sequences are split over; what they compute is in the integration tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltrain.backends.megatron import shim

shim.install()

from rltrain.backends.megatron.context_parallel import find_runs, split_pairs, split_rows  # noqa: E402
from rltrain.data.packing import pack  # noqa: E402
from rltrain.types.batch import PackedRows, Ragged, RolloutBatch  # noqa: E402


def packed(samples: list[tuple[int, int]]) -> PackedRows:
    """Samples of one of three prompts, each with so many response tokens."""
    prompts = [np.arange(4 * kind + 1, dtype=np.int32) for kind, _ in samples]
    responses = [np.arange(length, dtype=np.int32) for _, length in samples]
    zeros = Ragged.of([response.astype(np.float32) for response in responses], np.float32)
    batch = RolloutBatch(
        step=0, version=0, prompt_ids=Ragged.of(prompts, np.int32), response_ids=Ragged.of(responses, np.int32),
        loss_mask=Ragged(np.ones(len(zeros.values), np.bool_), zeros.offsets), rollout_logprobs=zeros,
        advantages=zeros, group_B=np.arange(len(samples), dtype=np.int32),
    )  # fmt: skip
    return pack(batch, range(len(samples)))


SAMPLES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=8)
RANKS = st.integers(1, 4)


@given(SAMPLES, RANKS, st.sampled_from([1, 2, 4]))
def test_every_row_is_on_one_rank_and_ranks_have_as_many(
    samples: list[tuple[int, int]], ranks: int, multiple: int
) -> None:
    split = split_rows(packed(samples), ranks=ranks, multiple=multiple)
    counts = [len(split.rows(rank)) for rank in range(ranks)]
    assert max(counts) - min(counts) <= 1
    assert split.width % multiple == 0 and 0 <= split.width - max(counts) < multiple
    assert len(set(split.place_T.tolist())) == len(split.place_T)
    for rank in range(ranks):
        assert (split.place_T[split.rows(rank)] - rank * split.width).tolist() == list(range(counts[rank]))


@given(SAMPLES, RANKS, st.sampled_from([1, 2]))
def test_every_row_is_a_query_once_and_sees_its_sequence_up_to_itself(
    samples: list[tuple[int, int]], ranks: int, multiple: int
) -> None:
    rows = packed(samples)
    split = split_rows(rows, ranks=ranks, multiple=multiple)
    row_at = {place: row for row, place in enumerate(split.place_T.tolist())}
    expected = {}
    for start, end in zip(rows.cu_seqlens[:-1], rows.cu_seqlens[1:], strict=True):
        sequence = rows.rows_E[start:end].tolist()
        for place, row in enumerate(sequence):
            expected.setdefault(row, sequence[: place + 1])
    found: dict[int, list[int]] = {}
    for rank in range(ranks):
        runs = find_runs(rows, split, rank=rank)
        queries: list[int] = []
        for number in range(len(runs.starts_q) - 1):
            own = runs.query_Q[runs.starts_q[number] : runs.starts_q[number + 1]].tolist()
            keys = runs.key_K[runs.starts_k[number] : runs.starts_k[number + 1]].tolist()
            queries += own
            for back, query in enumerate(reversed(own)):
                place = rank * split.width + query
                if place in row_at:
                    found[row_at[place]] = [row_at[key] for key in keys[: len(keys) - back]]
        assert sorted(queries) == list(range(split.width))  # padding included, so that nothing is undefined
    assert found == expected


@given(SAMPLES, RANKS)
def test_pairs_of_all_ranks_come_back_in_order(samples: list[tuple[int, int]], ranks: int) -> None:
    rows = packed(samples)
    split = split_rows(rows, ranks=ranks)
    parts = [split_pairs(rows, split, rank=rank, ranks=ranks) for rank in range(ranks)]
    together = np.full(ranks * parts[0].width, -1)
    for rank, part in enumerate(parts):
        together[rank * part.width : rank * part.width + len(part.own)] = part.own
        assert split.rows(rank)[part.row].tolist() == rows.row_P[part.own].tolist()
    assert together[parts[0].order_P].tolist() == list(range(len(rows.row_P)))


@pytest.mark.parametrize("ranks", [2, 4])
def test_causal_attention_costs_all_ranks_alike(ranks: int) -> None:
    """Of one long sequence: a rank's attended pairs differ from another's by a row's at most; cut once, by far more."""
    rows = packed([(0, 1000)])
    split = split_rows(rows, ranks=ranks)
    pairs = [int((rows.positions_T[split.rows(rank)] + 1).sum()) for rank in range(ranks)]
    assert max(pairs) - min(pairs) <= len(rows.tokens_T) + 1


def test_short_responses_are_dealt_in_turn_and_none_is_padded() -> None:
    split = split_rows(packed([(0, 2)] * 8), ranks=4)
    assert [len(split.rows(rank)) for rank in range(4)] == [3, 2, 2, 2]
    assert split.width == 3
