"""Rows that several sequences share, copied for each of them and taken back, without torch's slow sums of rows.

The backward pass of `index_select` adds every row atomically, an eighth of a training step on a GPU. Here rows that
appear once are copied, and only the further copies of shared ones are added.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def spread(rows: Tensor, rows_E: Tensor, place_T: Any, extra_X: Tensor | None) -> Tensor:
    """[T, ...] -> [E, ...]: entry e is row `rows_E[e]`.

    `place_T` is an entry of each row; `extra_X` are all other entries. Where it is None, these must get no gradient.
    """
    return _Spread.apply(rows, rows_E, place_T, extra_X)  # pyright: ignore[reportReturnType]


def taken(entries: Tensor, place_T: Any) -> Tensor:
    """[E, ...] -> [T, ...]: entry `place_T[t]`, which is another one for each t."""
    return _Taken.apply(entries, place_T)  # pyright: ignore[reportReturnType]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rows_E: Tensor, place_T: Tensor, extra_X: Tensor | None) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(rows_E, place_T, extra_X)
        return rows.index_select(0, rows_E)

    @staticmethod
    def backward(ctx: Any, grad_E: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows_E, place_T, extra_X = ctx.saved_tensors
        grad_T = grad_E.index_select(0, place_T)
        if extra_X is not None:
            grad_T.index_add_(0, rows_E.index_select(0, extra_X), grad_E.index_select(0, extra_X))
        return grad_T, None, None, None


class _Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Tensor, place_T: Tensor) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(place_T)
        ctx.num_entries = entries.size(0)
        return entries.index_select(0, place_T)

    @staticmethod
    def backward(ctx: Any, grad_T: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (place_T,) = ctx.saved_tensors
        grad_E = grad_T.new_zeros(ctx.num_entries, *grad_T.shape[1:])
        return grad_E.index_copy_(0, place_T, grad_T), None
