"""Log-probs and entropies of scored pairs from hidden states, a chunk of rows at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK_BYTES = 256 * 2**20
"""Most bytes of fp32 logits that are held at once."""


def pair_logprobs(
    hidden_P: Tensor,
    weight: Tensor,
    targets_P: Tensor,
    *,
    temperature: float,
    group: Any,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and the distribution's entropy in nats, both fp32 [P].

    hidden_P [P, hidden], weight [vocabulary / ranks, hidden] of this rank of `group`, targets_P [P] int64. The softmax
    of logits / temperature is fp32; the backward pass computes logits again. Entropy has no gradient. A target outside
    of the vocabulary gets log-prob 0 and no gradient. Rows of the ranks' weights past `vocab_size` are padding: no part
    of the distribution, and without gradient.
    """
    ranks, rank = (group.size(), group.rank()) if group is not None else (1, 0)
    size = ranks * weight.size(0) if vocab_size is None else vocab_size
    start = rank * weight.size(0)
    own = weight[: size - start] if size < start + weight.size(0) else weight
    return _PairLogprobs.apply(hidden_P, own, targets_P, (start, size), temperature, group)  # pyright: ignore


class _PairLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        hidden_P: Tensor,
        weight: Tensor,
        targets_P: Tensor,
        place: tuple[int, int],
        temperature: float,
        group: Any,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_P.dtype, torch.float32)
        logprobs_P = torch.empty(len(targets_P), dtype=wide, device=hidden_P.device)
        entropy_P, norm_P = torch.empty_like(logprobs_P), torch.empty_like(logprobs_P)
        local_P, mine_P, legal_P = _local_targets(targets_P, weight, place)
        for rows in _chunks(len(targets_P), weight):
            logits = _logits(hidden_P[rows], weight, temperature)
            top = _reduced(logits.amax(-1), group, dist.ReduceOp.MAX)
            shifted = logits - top[:, None]
            chosen = torch.where(mine_P[rows], shifted.gather(-1, local_P[rows, None])[:, 0], 0.0)
            exponentials = shifted.exp()
            sums = torch.stack([exponentials.sum(-1), (exponentials * shifted).sum(-1), chosen])
            total, weighted, chosen = _reduced(sums, group, dist.ReduceOp.SUM)
            log_total = total.log()
            logprobs_P[rows] = torch.where(legal_P[rows], chosen - log_total, 0.0)
            entropy_P[rows] = log_total - weighted / total
            norm_P[rows] = top + log_total
        ctx.save_for_backward(hidden_P, weight, local_P, mine_P, legal_P, norm_P)
        ctx.temperature, ctx.group = temperature, group
        ctx.mark_non_differentiable(entropy_P)
        return logprobs_P, entropy_P

    @staticmethod
    def backward(ctx: Any, grad_P: Tensor, _entropy: Any) -> Any:  # pyright: ignore
        hidden_P, weight, local_P, mine_P, legal_P, norm_P = ctx.saved_tensors
        grad_P = torch.where(legal_P, grad_P, 0.0) / ctx.temperature
        grad_hidden = torch.zeros_like(hidden_P)
        grad_weight = torch.zeros_like(weight, dtype=norm_P.dtype)
        for rows in _chunks(len(grad_P), weight):
            scale = grad_P[rows, None]
            grad = (_logits(hidden_P[rows], weight, ctx.temperature) - norm_P[rows, None]).exp_().mul_(-scale)
            grad.scatter_add_(-1, local_P[rows, None], torch.where(mine_P[rows, None], scale, 0.0))
            grad = grad.to(weight.dtype)
            grad_hidden[rows] = grad @ weight
            grad_weight += grad.t() @ hidden_P[rows]
        grad_hidden = _reduced(grad_hidden, ctx.group, dist.ReduceOp.SUM)
        return grad_hidden, grad_weight.to(weight.dtype), None, None, None, None


def _local_targets(targets_P: Tensor, weight: Tensor, place: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Targets as rows of this rank's weight (any legal row where it has not the target), whether it has them, and
    whether any rank does. `place` is the first of its rows and the size of the vocabulary."""
    start, vocab_size = place
    local_P = targets_P - start
    mine_P = (local_P >= 0) & (local_P < weight.size(0))
    legal_P = (targets_P >= 0) & (targets_P < vocab_size)
    return torch.where(mine_P, local_P, 0), mine_P, legal_P


def _chunks(num_rows: int, weight: Tensor) -> list[slice]:
    size = max(1, CHUNK_BYTES // (4 * weight.size(0)))
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits = hidden @ weight.t()
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature


def _reduced(values: Tensor, group: Any, operation: Any) -> Tensor:
    if group is not None and group.size() > 1:
        dist.all_reduce(values, operation, group=group)
    return values
