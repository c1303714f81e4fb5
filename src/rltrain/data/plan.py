"""Splits a batch over optimizer steps, data-parallel ranks and micro-batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rltrain.types.batch import Offsets, OptimizerStep, RolloutBatch, StepPlan

Bins = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleSizes:
    """What the split depends on, of B samples."""

    prompt_B: Offsets
    response_B: Offsets
    """Tokens."""
    loss_tokens_B: npt.NDArray[np.number]
    group_B: npt.NDArray[np.integer]
    """Which prompt of the step; groups of an optimizer step are neighbours."""
    shared_B: Offsets
    """Equal where samples of one micro-batch have one set of rows for their prompts."""

    @classmethod
    def of(cls, batch: RolloutBatch, *, share_prompts: bool) -> SampleSizes:
        numbers: dict[bytes, int] = {}
        shared = [numbers.setdefault(batch.prompt_ids[row].tobytes(), len(numbers)) for row in range(len(batch))]
        return cls(
            prompt_B=batch.prompt_ids.lengths,
            response_B=batch.response_ids.lengths,
            loss_tokens_B=batch.loss_mask.sums(),
            group_B=batch.group_B,
            shared_B=np.array(shared, np.int64) if share_prompts else np.arange(len(batch)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a step is worked off."""

    prompts_per_update: int
    """Groups that make an optimizer step."""
    ranks: int
    """Data-parallel ones: copies of the model."""
    tokens_per_micro_batch: int
    """No micro-batch has more."""
    multiple_of: int = 1
    """What the number of a rank's micro-batches must divide by."""
    balance: Literal["first_fit", "flops"] = "first_fit"
    """As few micro-batches as first fit finds, or as many of about the same cost."""
    row_cost: float = 0.0
    """Of a row's matrix products, in attended pairs of tokens: six times the hidden size."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Samples that go into one micro-batch together, with one prompt."""

    numbers: tuple[int, ...]
    tokens: int
    cost: float


def make_plan(sizes: SampleSizes, schedule: Schedule) -> StepPlan:
    """Every sample with a trainable token, once; those without any are left out.

    Raises ValueError naming a sample that is longer than a micro-batch may be.
    """
    trained = np.flatnonzero(sizes.loss_tokens_B > 0)
    _check_lengths(trained, sizes, schedule)
    num_steps = -(-(int(sizes.group_B.max()) + 1) // schedule.prompts_per_update) if len(sizes.group_B) else 0
    step_of = sizes.group_B[trained] // schedule.prompts_per_update
    steps: list[OptimizerStep] = []
    for step in range(num_steps):
        members = trained[step_of == step]
        shares = _deal(_units(members, sizes, schedule), schedule.ranks)
        micro_batches = in_lockstep(_all_bins(shares, schedule), multiple_of=schedule.multiple_of)
        steps.append(OptimizerStep(micro_batches, int(sizes.loss_tokens_B[members].sum())))
    return StepPlan(tuple(steps))


def _check_lengths(trained: Offsets, sizes: SampleSizes, schedule: Schedule) -> None:
    if not len(trained):
        return
    total_B = sizes.prompt_B + sizes.response_B
    longest = trained[np.argmax(total_B[trained])]
    if total_B[longest] > schedule.tokens_per_micro_batch:
        raise ValueError(
            f"sample {longest} has {total_B[longest]} tokens, more than "
            f"actor.tokens_per_micro_batch = {schedule.tokens_per_micro_batch}"
        )


def _units(members: Offsets, sizes: SampleSizes, schedule: Schedule) -> list[_Unit]:
    """Samples with one prompt stay together as far as the cap and an even split over the ranks let them.

    The prompt of samples that don't is computed once for each part of them.
    """
    families: dict[int, list[int]] = {}
    for number in members.tolist():
        families.setdefault(int(sizes.shared_B[number]), []).append(number)
    units = [_unit(numbers, sizes, schedule) for numbers in families.values()]
    fair_share = sum(unit.cost for unit in units) / schedule.ranks
    whole: list[_Unit] = []
    while units:
        unit = units.pop()
        too_much = unit.tokens > schedule.tokens_per_micro_batch or unit.cost > fair_share
        if len(unit.numbers) > 1 and too_much:
            units += _halves(unit, sizes, schedule)
        else:
            whole.append(unit)
    while len(whole) < schedule.ranks and any(len(unit.numbers) > 1 for unit in whole):  # a rank would be idle
        costliest = max((unit for unit in whole if len(unit.numbers) > 1), key=lambda unit: (unit.cost, unit.numbers))
        whole.remove(costliest)
        whole += _halves(costliest, sizes, schedule)
    return sorted(whole, key=lambda unit: (-unit.cost, unit.numbers))


def _halves(unit: _Unit, sizes: SampleSizes, schedule: Schedule) -> list[_Unit]:
    longest_first = sorted(unit.numbers, key=lambda number: (-sizes.response_B[number], number))
    return [_unit(longest_first[half::2], sizes, schedule) for half in (0, 1)]


def _unit(numbers: Sequence[int], sizes: SampleSizes, schedule: Schedule) -> _Unit:
    """With its prompt P and responses R: P^2 / 2 + sum of (P R + R^2 / 2) attended pairs, and the rows' own cost."""
    prompt = int(sizes.prompt_B[numbers[0]])
    response_N = sizes.response_B[list(numbers)].astype(np.float64)
    tokens = prompt + int(response_N.sum())
    pairs = prompt**2 / 2 + float((prompt * response_N + response_N**2 / 2).sum())
    return _Unit(tuple(sorted(numbers)), tokens, pairs + schedule.row_cost * tokens)


def _deal(units: Iterable[_Unit], ranks: int) -> list[list[_Unit]]:
    """The costliest first, each to the rank that has least."""
    shares: list[list[_Unit]] = [[] for _ in range(ranks)]
    costs = [0.0] * ranks
    for unit in units:
        rank = costs.index(min(costs))
        shares[rank].append(unit)
        costs[rank] += unit.cost
    return shares


def _all_bins(shares: Sequence[Sequence[_Unit]], schedule: Schedule) -> list[Bins]:
    cap = schedule.tokens_per_micro_batch
    bins = [_first_fit(share, cap) for share in shares]
    if schedule.balance == "first_fit":
        return [_numbers(one) for one in bins]
    count = max(len(rank) for rank in in_lockstep([_numbers(one) for one in bins], multiple_of=schedule.multiple_of))
    return [_numbers(_even(share, count, cap)) for share in shares]


def _first_fit(units: Sequence[_Unit], cap: int) -> list[list[_Unit]]:
    """Longest first; no bin exceeds the cap."""
    bins: list[list[_Unit]] = []
    room: list[int] = []
    for unit in sorted(units, key=lambda unit: (-unit.tokens, unit.numbers)):
        place = next((place for place, left in enumerate(room) if left >= unit.tokens), len(bins))
        if place == len(bins):
            bins.append([])
            room.append(cap)
        bins[place].append(unit)
        room[place] -= unit.tokens
    return bins


def _even(units: Sequence[_Unit], count: int, cap: int) -> list[list[_Unit]]:
    """The costliest first, each to the bin of `count` that costs least and has room; first fit where one finds none."""
    bins: list[list[_Unit]] = [[] for _ in range(count)]
    room, costs = [cap] * count, [0.0] * count
    for unit in units:
        fitting = [place for place in range(count) if room[place] >= unit.tokens]
        if not fitting:
            return _first_fit(units, cap)
        place = min(fitting, key=costs.__getitem__)
        bins[place].append(unit)
        room[place] -= unit.tokens
        costs[place] += unit.cost
    return [one for one in bins if one]


def _numbers(bins: Sequence[Sequence[_Unit]]) -> Bins:
    return [tuple(sorted(number for unit in one for number in unit.numbers)) for one in bins]


def in_lockstep(bins: Sequence[Bins], *, multiple_of: int = 1) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Each rank's micro-batches, as many on every one: all ranks take part in every collective.

    Empty ones, which have no loss, stand in where there are too few. An interleaved pipeline wants a multiple of its
    stages.
    """
    most = -(-max(1, *(len(rank) for rank in bins)) // multiple_of) * multiple_of
    return tuple(tuple(rank) + ((),) * (most - len(rank)) for rank in bins)
