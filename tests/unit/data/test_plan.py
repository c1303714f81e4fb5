"""How a batch is split: nothing lost or doubled, the cap is strict, ranks stay in step and have about as much to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rltrain.data.packing import pack
from rltrain.data.plan import SampleSizes, Schedule, in_lockstep, make_plan
from rltrain.types.batch import OptimizerStep, Ragged, RolloutBatch, StepPlan


def sizes_of(
    responses: Sequence[int],
    *,
    prompts: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
    loss_tokens: Sequence[int] | None = None,
    share: bool = False,
) -> SampleSizes:
    """Samples of a group have one prompt where `share`."""
    group_B = np.asarray(groups or [0] * len(responses), np.int32)
    return SampleSizes(
        prompt_B=np.asarray(prompts or [0] * len(responses), np.int64),
        response_B=np.asarray(responses, np.int64),
        loss_tokens_B=np.ones(len(responses)) if loss_tokens is None else np.asarray(loss_tokens),
        group_B=group_B,
        shared_B=group_B.astype(np.int64) if share else np.arange(len(responses)),
    )


def schedule(cap: int, **more: Any) -> Schedule:
    return Schedule(tokens_per_micro_batch=cap, **({"ranks": 1, "prompts_per_update": 1} | more))


@pytest.mark.parametrize(("lengths", "num_bins"), [([7] * 8, 8), ([5, 5, 3, 3], 2)])
@pytest.mark.parametrize("balance", ["first_fit", "flops"])
def test_pak_01_the_cap_is_strict(lengths: list[int], num_bins: int, balance: str) -> None:
    (bins,) = make_plan(sizes_of(lengths), schedule(8, balance=balance)).steps[0].micro_batches
    assert len(bins) == num_bins
    assert all(sum(lengths[number] for number in numbers) <= 8 for numbers in bins)


def test_pak_04_ranks_differ_by_one_sample_of_the_same_length_at_most() -> None:
    step = make_plan(sizes_of([1] * 9), schedule(9, ranks=4)).steps[0]
    assert sorted(sum(map(len, rank)) for rank in step.micro_batches) == [2, 2, 2, 3]


def test_pak_04_a_rank_without_samples_gets_a_filler() -> None:
    assert make_plan(sizes_of([1] * 3), schedule(9, ranks=4)).steps[0].micro_batches[3] == ((),)


def test_a_sample_longer_than_the_cap_is_named() -> None:
    with pytest.raises(ValueError, match=r"sample 1 has 9 tokens, more than .* = 8"):
        make_plan(sizes_of([3, 4], prompts=[1, 5]), schedule(8))


def test_adv_14_each_optimizer_step_counts_its_own_tokens() -> None:
    groups = [number // 8 for number in range(16)]
    assert [step.num_loss_tokens for step in make_plan(sizes_of([2] * 16, groups=groups), schedule(99)).steps] == [8, 8]


def test_samples_without_trainable_tokens_are_left_out() -> None:
    plan = make_plan(sizes_of([99, 2], loss_tokens=[0, 1]), schedule(8))
    assert plan.steps[0].micro_batches == (((1,),),)


def test_an_interleaved_pipeline_gets_a_multiple_of_its_stages() -> None:
    (bins,) = make_plan(sizes_of([5] * 5), schedule(5, multiple_of=4)).steps[0].micro_batches
    assert len(bins) == 8 and bins[5:] == ((), (), ())
    assert in_lockstep([[(0,)], []], multiple_of=2) == (((0,), ()), ((), ()))


def test_samples_of_one_prompt_stay_together_and_pay_for_it_once() -> None:
    """Groups of 10 + 4 x 2 = 18 tokens; two of them fit 40, with the prompt four times over only one would."""
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    sizes = sizes_of([2] * 8, prompts=[10] * 8, groups=groups, share=True)
    assert make_plan(sizes, schedule(40, prompts_per_update=2)).steps[0].micro_batches == ((tuple(range(8)),),)
    split = make_plan(sizes, schedule(40, prompts_per_update=2, ranks=2)).steps[0].micro_batches
    assert sorted(split) == [((0, 1, 2, 3),), ((4, 5, 6, 7),)]


def test_a_group_over_the_budget_is_split_and_repeats_its_prompt() -> None:
    sizes = sizes_of([6] * 4, prompts=[8] * 4, share=True)
    (bins,) = make_plan(sizes, schedule(20)).steps[0].micro_batches
    assert sorted(map(len, bins)) == [2, 2]


def test_one_group_is_split_over_ranks_rather_than_leaving_one_idle() -> None:
    step = make_plan(sizes_of([6] * 4, prompts=[8] * 4, share=True), schedule(99, ranks=2)).steps[0]
    assert sorted(sum(map(len, rank)) for rank in step.micro_batches) == [2, 2]


def test_balanced_micro_batches_cost_about_the_same() -> None:
    """Longest first fills 60 + 40, then 40 + 20 + 20 + 20; by the square of the length, the 60 stays nearly alone."""
    lengths = [60, 40, 40, 20, 20, 20]
    costs: dict[str, list[int]] = {}
    for balance in ("first_fit", "flops"):
        (bins,) = make_plan(sizes_of(lengths), schedule(120, balance=balance)).steps[0].micro_batches
        costs[balance] = [sum(lengths[number] ** 2 for number in numbers) for numbers in bins]
        assert len(bins) == 2
    assert max(costs["flops"]) < max(costs["first_fit"])


def test_a_share_is_spread_over_all_micro_batches_that_the_busiest_rank_needs() -> None:
    """A filler would leave a rank idle where its samples could be spread."""
    sizes = sizes_of([90, 30, 30, 30])
    step = make_plan(sizes, schedule(60 + 30, ranks=2, balance="flops", multiple_of=2)).steps[0]
    assert [sum(1 for numbers in rank if numbers) for rank in step.micro_batches] == [1, 2]


SAMPLES = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 18), st.integers(0, 3)), min_size=1, max_size=60)


@given(
    SAMPLES, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.sampled_from(["first_fit", "flops"]),
    st.booleans(), st.integers(30, 90),
)  # fmt: skip
@example([(1, 0, 1), (1, 0, 1), (1, 0, 1), (1, 3, 1)], 4, 1, 1, "first_fit", True, 30)
def test_every_trainable_sample_is_planned_once(
    samples: list[tuple[int, int, int]], ranks: int, per: int, multiple: int, balance: str, share: bool, cap: int
) -> None:
    groups = [number // 4 for number in range(len(samples))]
    prompts = [samples[number - number % 4][0] for number in range(len(samples))]
    _, responses, tokens = zip(*samples, strict=True)
    sizes = sizes_of(responses, prompts=prompts, groups=groups, loss_tokens=tokens, share=share)
    plan = make_plan(
        sizes, schedule(cap, ranks=ranks, prompts_per_update=per, multiple_of=multiple, balance=balance, row_cost=5.0)
    )
    for number, step in enumerate(plan.steps):
        assert {len(rank) % multiple for rank in step.micro_batches} == {0}
        assert len({len(rank) for rank in step.micro_batches}) == 1 and len(step.micro_batches) == ranks
        members = _members(step)
        assert all(groups[sample] // per == number for sample in members)
        assert step.num_loss_tokens == sum(tokens[sample] for sample in members)
        for numbers in (numbers for rank in step.micro_batches for numbers in rank):
            heads = {groups[sample] if share else sample: prompts[sample] for sample in numbers}
            assert sum(heads.values()) + sum(responses[sample] for sample in numbers) <= cap
        if len(members) >= ranks:
            assert all(any(rank) for rank in step.micro_batches)
    planned = [sample for step in plan.steps for sample in _members(step)]
    assert sorted(planned) == np.flatnonzero(tokens).tolist()


@given(SAMPLES, st.integers(1, 4))
def test_no_rank_has_much_more_to_do_than_another(samples: list[tuple[int, int, int]], ranks: int) -> None:
    """Greedy by cost: the busiest rank is ahead of the idlest by at most the costliest sample."""
    prompts, responses, _ = zip(*samples, strict=True)
    step = make_plan(sizes_of(responses, prompts=prompts), schedule(30, ranks=ranks)).steps[0]
    costs = [(p + r) ** 2 / 2 for p, r in zip(prompts, responses, strict=True)]
    loads = [sum(costs[sample] for numbers in rank for sample in numbers) for rank in step.micro_batches]
    assert max(loads) - min(loads) <= max(costs) + 1e-6


def _members(step: OptimizerStep) -> list[int]:
    return [sample for rank in step.micro_batches for numbers in rank for sample in numbers]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=24), st.integers(1, 3))
def test_a_micro_batch_has_no_more_rows_than_planned(samples: list[tuple[int, int]], ranks: int) -> None:
    """Real packing of real prompts, three different ones in any groups."""
    prompts = [np.arange(5 * (kind + 1), dtype=np.int32) for kind, _ in samples]
    responses = [np.zeros(length, np.int32) for _, length in samples]
    zeros = Ragged.of([response.astype(np.float32) for response in responses], np.float32)
    batch = RolloutBatch(
        step=0, version=0, prompt_ids=Ragged.of(prompts, np.int32), response_ids=Ragged.of(responses, np.int32),
        loss_mask=Ragged(np.ones(len(zeros.values), np.bool_), zeros.offsets), rollout_logprobs=zeros,
        advantages=zeros, group_B=np.arange(len(samples), dtype=np.int32) // 4,
    )  # fmt: skip
    plan: StepPlan = make_plan(
        SampleSizes.of(batch, share_prompts=True), schedule(30, ranks=ranks, prompts_per_update=3)
    )
    for numbers in (numbers for step in plan.steps for rank in step.micro_batches for numbers in rank if numbers):
        assert len(pack(batch, numbers).tokens_T) <= 30
