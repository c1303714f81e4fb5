"""Tests of rltrain.backends.megatron.shared_rows against index_select and its own backward pass."""

from __future__ import annotations

import torch

from rltrain.backends.megatron.shared_rows import spread, taken

ROWS_E = torch.tensor([0, 1, 2, 0, 1, 3, 0, 1, 4])
"""Rows 0 and 1 belong to three sequences."""
PLACE_T = torch.tensor([6, 7, 2, 5, 8])
EXTRA_X = torch.tensor([0, 1, 3, 4])


def test_every_copy_of_a_shared_row_gives_its_part_of_the_gradient() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight_E = torch.randn(9, 3, dtype=torch.float64)
    (expected,) = torch.autograd.grad((rows.index_select(0, ROWS_E) * weight_E).sum(), rows)
    entries = spread(rows, ROWS_E, PLACE_T, EXTRA_X)
    assert torch.equal(entries, rows[ROWS_E])
    (found,) = torch.autograd.grad((entries * weight_E).sum(), rows)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_is_taken_gets_the_gradient_and_other_entries_none() -> None:
    entries = torch.randn(9, 3, requires_grad=True)
    weight_T = torch.randn(5, 3)
    result = taken(entries, PLACE_T)
    assert torch.equal(result, entries[PLACE_T])
    (found,) = torch.autograd.grad((result * weight_T).sum(), entries)
    expected = torch.zeros(9, 3)
    expected[PLACE_T] = weight_T
    assert torch.equal(found, expected)


def test_where_only_one_entry_a_row_is_used_no_sum_is_needed() -> None:
    rows = torch.randn(5, 3, requires_grad=True)
    weight_T = torch.randn(5, 3)
    (found,) = torch.autograd.grad((taken(spread(rows, ROWS_E, PLACE_T, None), PLACE_T) * weight_T).sum(), rows)
    assert torch.equal(found, weight_T)
