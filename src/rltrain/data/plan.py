"""Splits a batch over optimizer steps, data-parallel ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rltrain.types.batch import Offsets, OptimizerStep, StepPlan

Bins = list[tuple[int, ...]]


def make_plan(
    total_lengths_B: Offsets,
    loss_tokens_B: npt.NDArray[np.number],
    group_B: npt.NDArray[np.int32],
    *,
    prompts_per_update: int,
    ranks: int,
    tokens_per_micro_batch: int,
) -> StepPlan:
    """Every sample with a trainable token, once; those without any are left out.

    `prompts_per_update` groups make an optimizer step. Raises ValueError naming a sample that is longer than
    `tokens_per_micro_batch`, which no micro-batch exceeds.
    """
    trained = np.flatnonzero(loss_tokens_B > 0)
    longest = trained[np.argmax(total_lengths_B[trained])] if len(trained) else None
    if longest is not None and total_lengths_B[longest] > tokens_per_micro_batch:
        raise ValueError(
            f"sample {longest} has {total_lengths_B[longest]} tokens, more than "
            f"actor.tokens_per_micro_batch = {tokens_per_micro_batch}"
        )
    num_steps = -(-(int(group_B.max()) + 1) // prompts_per_update) if len(group_B) else 0
    step_of = group_B[trained] // prompts_per_update
    steps: list[OptimizerStep] = []
    for step in range(num_steps):
        members = trained[step_of == step]
        shares = _deal(members, total_lengths_B, ranks)
        bins = [_bins(share, total_lengths_B, tokens_per_micro_batch) for share in shares]
        steps.append(OptimizerStep(_equally_many(bins), int(loss_tokens_B[members].sum())))
    return StepPlan(tuple(steps))


def _deal(members: Offsets, lengths_B: Offsets, ranks: int) -> list[list[int]]:
    """Longest first, to and fro over the ranks: as many samples each (give or take one) and about as many tokens."""
    order = members[np.argsort(-lengths_B[members], kind="stable")].tolist()
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for start in range(0, len(order), ranks):
        places = range(ranks) if start // ranks % 2 == 0 else range(ranks - 1, -1, -1)
        for place, number in zip(places, order[start : start + ranks], strict=False):
            shares[place].append(number)
    return shares


def _bins(share: Sequence[int], lengths_B: Offsets, cap: int) -> Bins:
    """First fit, longest first; no bin exceeds the cap."""
    bins: list[list[int]] = []
    room: list[int] = []
    for number in share:
        length = int(lengths_B[number])
        place = next((place for place, left in enumerate(room) if left >= length), len(bins))
        if place == len(bins):
            bins.append([])
            room.append(cap)
        bins[place].append(number)
        room[place] -= length
    return [tuple(sorted(numbers)) for numbers in bins]


def _equally_many(bins: Sequence[Bins]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Empty micro-batches for ranks that have fewer: all ranks take part in every collective."""
    most = max(1, *(len(rank) for rank in bins))
    return tuple(tuple(rank) + ((),) * (most - len(rank)) for rank in bins)
