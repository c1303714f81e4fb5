"""Context parallelism: which rank has which rows of a micro-batch, and attention over keys and values of all ranks.

The layout is known here alone. Every run of positions (a prompt, a response) is cut into twice as many pieces as there
are ranks, and rank r has the r-th piece from either end, so that causal attention costs all ranks alike. What doesn't
divide goes to one rank after the other: only the rows of a whole micro-batch are padded, not every response. Ranks
have other rows, but the same list of scored pairs: what they find for their own is collected in its order, so losses,
whitening and sums over a sequence are computed as if there were one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from rltrain.backends.megatron.shared_rows import spread
from rltrain.backends.megatron.varlen_kernel import attend
from rltrain.types.batch import Offsets, PackedRows

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A micro-batch's rows over the ranks, each with equally many: real ones in their order, padding behind."""

    owner_T: Offsets
    """Rank of each row."""
    place_T: Offsets
    """Where each row lies when the ranks' rows are put behind one another."""
    width: int
    """Rows of every rank."""

    def rows(self, rank: int) -> Offsets:
        """The real rows of a rank."""
        return np.flatnonzero(self.owner_T == rank)


def split_rows(rows: PackedRows, *, ranks: int, multiple: int = 1) -> Split:
    """The same answer on every rank; each one's number of rows divides by `multiple`, and real ones differ by one."""
    owner_T = _owners(rows.positions_T, ranks)
    counts_R = np.bincount(owner_T, minlength=ranks)
    width = -(-int(counts_R.max()) // multiple) * multiple
    place_T = np.empty(len(owner_T), np.int64)
    for rank in range(ranks):
        place_T[owner_T == rank] = rank * width + np.arange(counts_R[rank])
    return Split(owner_T, place_T, width)


def _owners(positions_T: npt.NDArray[np.integer], ranks: int) -> Offsets:
    breaks = np.flatnonzero(np.diff(positions_T) != 1) + 1
    lengths = np.diff(np.concatenate([[0], breaks, [len(positions_T)]]))
    ranks_of_pieces = np.concatenate([np.arange(ranks), np.arange(ranks)[::-1]])
    owners: list[Offsets] = []
    turn = 0
    for length in lengths.tolist():
        whole, left = divmod(length, 2 * ranks)
        sizes = np.full(2 * ranks, whole)
        for number in range(left):
            rank, second = (turn + number) % ranks, number >= ranks
            sizes[2 * ranks - 1 - rank if second else rank] += 1
        turn = (turn + left) % ranks
        owners.append(np.repeat(ranks_of_pieces, sizes))
    return np.concatenate(owners)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A rank's queries in runs of neighbours within a sequence, each with the keys up to its last one.

    A row that several sequences share is a query in the first of them alone.
    """

    query_Q: Offsets
    """The rank's row of each query."""
    starts_q: Offsets
    key_K: Offsets
    """Place of each key among all ranks' rows."""
    starts_k: Offsets


def find_runs(rows: PackedRows, split: Split, *, rank: int) -> Runs:
    local_T = split.place_T - rank * split.width
    sequence_E = np.repeat(np.arange(len(rows.cu_seqlens) - 1), np.diff(rows.cu_seqlens))
    first_E = np.zeros(len(rows.rows_E), np.bool_)
    first_E[np.unique(rows.rows_E, return_index=True)[1]] = True
    entries_Q = np.flatnonzero(first_E & (split.owner_T[rows.rows_E] == rank))
    breaks = np.flatnonzero((np.diff(entries_Q) != 1) | (np.diff(sequence_E[entries_Q]) != 0)) + 1
    query_runs = np.split(local_T[rows.rows_E[entries_Q]], breaks)
    key_runs: list[Offsets] = []
    for run in np.split(entries_Q, breaks):
        if len(run):
            start = int(rows.cu_seqlens[sequence_E[run[0]]])
            key_runs.append(split.place_T[rows.rows_E[start : run[-1] + 1]])
    real = int((split.owner_T == rank).sum())
    if real < split.width:  # padding looks at itself alone
        padding = np.arange(real, split.width)
        query_runs.append(padding)
        key_runs.append(rank * split.width + padding)
    query_runs = [run for run in query_runs if len(run)]
    return Runs(np.concatenate(query_runs), _starts(query_runs), np.concatenate(key_runs), _starts(key_runs))


def _starts(runs: list[Offsets]) -> Offsets:
    return np.concatenate([[0], np.cumsum([len(run) for run in runs])]).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Runs with about as many keys, as a rectangle."""

    query_NQ: Tensor
    key_NK: Tensor
    hidden_NQK: Tensor
    """Additive mask: -inf where a query doesn't see the key."""
    last_NQ: Tensor
    """Each query's last key."""

    def mask(self, window: int | None) -> Tensor:
        if window is None:
            return self.hidden_NQK
        key_K = torch.arange(self.key_NK.size(1), device=self.key_NK.device)
        return self.hidden_NQK.masked_fill(key_K <= self.last_NQ[..., None] - window, float("-inf"))


class ContextAttention:
    """Attention of this rank's queries to the keys and values of all ranks, for one micro-batch."""

    def __init__(self, runs: Runs, *, group: Any, width: int, device: torch.device, kernel: bool) -> None:
        self._group = group
        place_T = np.empty(width, np.int64)
        if kernel:
            place_T[runs.query_Q] = np.arange(len(runs.query_Q))
            self._key_K = torch.from_numpy(runs.key_K).to(device)
            first = np.unique(runs.key_K, return_index=True)
            # Rows that none of this rank's queries sees have no copy: their gradient is nothing.
            self._seen = torch.from_numpy(first[0]).to(device)
            self._place_S = torch.from_numpy(first[1]).to(device)
            further = np.setdiff1d(np.arange(len(runs.key_K)), first[1])
            self._row_K = torch.from_numpy(np.searchsorted(first[0], runs.key_K)).to(device)
            self._extra_X = torch.from_numpy(further).to(device)
            self._starts_q, self._starts_k = (
                torch.from_numpy(starts.astype(np.int32)).to(device) for starts in (runs.starts_q, runs.starts_k)
            )
            self._longest = int(np.diff(runs.starts_q).max()), int(np.diff(runs.starts_k).max())
        self._query_Q = torch.from_numpy(runs.query_Q).to(device)
        self._stacks = () if kernel else tuple(_stacks(runs, place_T, device))
        self._place_T = torch.from_numpy(place_T).to(device)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None = None) -> Tensor:
        """query [T, heads, d], key and value [T, groups, d] of this rank -> [T, heads, d]."""
        both = torch.cat([key, value], -1)
        key, value = _AllRows.apply(both, self._group).split([key.size(-1), value.size(-1)], -1)  # pyright: ignore
        if not self._stacks:
            return self._by_kernel(query, key, value, scale, window)
        return self._by_stacks(query, key, value, scale, window)

    def _by_kernel(self, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        keys, values = (
            spread(tensor.index_select(0, self._seen), self._row_K, self._place_S, self._extra_X)
            for tensor in (key, value)
        )
        found = attend(
            query.index_select(0, self._query_Q),
            keys,
            values,
            starts_q=self._starts_q,
            starts_k=self._starts_k,
            longest_q=self._longest[0],
            longest_k=self._longest[1],
            scale=scale,
            window=window,
        )
        return found.index_select(0, self._place_T)

    def _by_stacks(self, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        heads, repeats = query.size(1), query.size(1) // key.size(1)
        results: list[Tensor] = []
        for stack in self._stacks:
            q = _rectangle(query, stack.query_NQ)
            k, v = (_rectangle(tensor, stack.key_NK).repeat_interleave(repeats, 1) for tensor in (key, value))
            mask = stack.mask(window)[:, None].to(q.dtype)
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
            results.append(found.transpose(1, 2).reshape(-1, heads, value.size(-1)))
        return torch.cat(results).index_select(0, self._place_T)


def _rectangle(tensor: Tensor, rows_NL: Tensor) -> Tensor:
    """[T, heads, d] -> [N, heads, L, d]."""
    return tensor.index_select(0, rows_NL.reshape(-1)).view(*rows_NL.shape, *tensor.shape[1:]).transpose(1, 2)


def _stacks(runs: Runs, place_T: Offsets, device: torch.device) -> list[_Stack]:
    """Writes to `place_T` where each row's result lies in those of the stacks behind one another."""
    num_q, num_k = np.diff(runs.starts_q), np.diff(runs.starts_k)
    size_N = 2 ** np.ceil(np.log2(num_k)).astype(np.int64)
    stacks: list[_Stack] = []
    start = 0
    for size in np.unique(size_N):
        members = np.flatnonzero(size_N == size)
        query_L, key_L = np.arange(num_q[members].max()), np.arange(num_k[members].max())
        query_NQ = runs.query_Q[
            np.minimum(runs.starts_q[members, None] + query_L, runs.starts_q[members + 1, None] - 1)
        ]
        key_NK = runs.key_K[np.minimum(runs.starts_k[members, None] + key_L, runs.starts_k[members + 1, None] - 1)]
        last_seen_NQ = (num_k - num_q)[members, None] + query_L
        seen_NQK = key_L <= last_seen_NQ[..., None]
        real_NQ = query_L < num_q[members, None]
        places_NQ = start + np.arange(query_NQ.size).reshape(query_NQ.shape)
        place_T[query_NQ[real_NQ]] = places_NQ[real_NQ]
        start += query_NQ.size
        hidden_NQK = np.where(seen_NQK, np.float32(0), np.float32(-np.inf))
        last_NQ = np.minimum(last_seen_NQ, num_k[members, None] - 1)
        found = (query_NQ, key_NK, hidden_NQK, last_NQ)
        stacks.append(_Stack(*(torch.from_numpy(array).to(device) for array in found)))
    return stacks


class _AllRows(torch.autograd.Function):
    """[T, ...] of every rank -> [ranks * T, ...] on each; a row's gradient is the sum of all ranks'."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.group = group
        found = rows.new_empty(group.size() * rows.size(0), *rows.shape[1:])
        dist.all_gather_into_tensor(found, rows.contiguous(), group=group)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = grad.new_empty(grad.size(0) // ctx.group.size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(found, grad.contiguous(), group=ctx.group)
        return found, None


@dataclass(frozen=True, slots=True, eq=False)
class PairSplit:
    """Which scored pairs are a rank's own: those whose row it has."""

    own: Offsets
    """Numbers of the pairs, in their order."""
    row: Offsets
    """The rank's row of each of them."""
    width: int
    """Most pairs of a rank."""
    order_P: Offsets
    """Where each pair lies when all ranks' are put behind one another, `width` apart."""


def split_pairs(rows: PackedRows, split: Split, *, rank: int, ranks: int) -> PairSplit:
    owner_P = split.owner_T[rows.row_P]
    counts_R = np.bincount(owner_P, minlength=ranks)
    width = max(1, int(counts_R.max()))
    order_P = np.empty(len(owner_P), np.int64)
    for number in range(ranks):
        order_P[owner_P == number] = number * width + np.arange(counts_R[number])
    own = np.flatnonzero(owner_P == rank)
    return PairSplit(own, split.place_T[rows.row_P[own]] - rank * split.width, width, order_P)


def all_pairs(own: Tensor, split: PairSplit, group: Any) -> Tensor:
    """What each rank found for its pairs -> [P], the same on every rank.

    Every rank goes on to compute the same from it, so each takes the gradient of its own pairs and none is summed.
    """
    return _AllPairs.apply(own, split, group)  # pyright: ignore[reportReturnType]


class _AllPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, split: PairSplit, group: Any) -> Tensor:  # pyright: ignore
        ctx.own = split.own
        padded = F.pad(own.detach(), (0, split.width - own.size(0)))
        found = own.new_empty(group.size() * split.width)
        dist.all_gather_into_tensor(found, padded, group=group)
        return found.index_select(0, torch.from_numpy(split.order_P).to(own.device))

    @staticmethod
    def backward(ctx: Any, grad_P: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad_P.index_select(0, torch.from_numpy(ctx.own).to(grad_P.device)), None, None
