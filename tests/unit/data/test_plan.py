"""How a batch is split: nothing lost or doubled, the cap is strict, ranks stay in step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltrain.data.plan import make_plan
from rltrain.types.batch import StepPlan


def plan_of(lengths: list[int], *, cap: int, ranks: int = 1, groups: list[int] | None = None, per: int = 1) -> StepPlan:
    return make_plan(
        np.asarray(lengths, np.int64),
        np.ones(len(lengths)),
        np.asarray(groups or [0] * len(lengths), np.int32),
        prompts_per_update=per,
        ranks=ranks,
        tokens_per_micro_batch=cap,
    )


@pytest.mark.parametrize(("lengths", "num_bins"), [([7] * 8, 8), ([5, 5, 3, 3], 2)])
def test_pak_01_the_cap_is_strict(lengths: list[int], num_bins: int) -> None:
    (bins,) = plan_of(lengths, cap=8).steps[0].micro_batches
    assert len(bins) == num_bins
    assert all(sum(lengths[number] for number in numbers) <= 8 for numbers in bins)


def test_pak_04_ranks_differ_by_one_sample_at_most() -> None:
    sizes = [sum(map(len, rank)) for rank in plan_of([1] * 9, cap=9, ranks=4).steps[0].micro_batches]
    assert sorted(sizes) == [2, 2, 2, 3]


def test_pak_04_a_rank_without_samples_gets_a_filler() -> None:
    assert plan_of([1] * 3, cap=9, ranks=4).steps[0].micro_batches[3] == ((),)


def test_a_sample_longer_than_the_cap_is_named() -> None:
    with pytest.raises(ValueError, match=r"sample 1 has 9 tokens, more than .* = 8"):
        plan_of([3, 9], cap=8)


def test_adv_14_each_optimizer_step_counts_its_own_tokens() -> None:
    plan = plan_of([2] * 16, cap=100, groups=[number // 8 for number in range(16)])
    assert [step.num_loss_tokens for step in plan.steps] == [8, 8]


def test_samples_without_trainable_tokens_are_left_out() -> None:
    plan = make_plan(
        np.array([99, 2]), np.array([0, 1]), np.zeros(2, np.int32), prompts_per_update=1, ranks=1,
        tokens_per_micro_batch=8,
    )  # fmt: skip
    assert plan.steps[0].micro_batches == (((1,),),)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_every_trainable_sample_is_planned_once(samples: list[tuple[int, int]], ranks: int, per: int) -> None:
    groups = np.arange(len(samples), dtype=np.int32) // 4
    lengths, tokens = (np.array(column) for column in zip(*samples, strict=True))
    plan = make_plan(lengths, tokens, groups, prompts_per_update=per, ranks=ranks, tokens_per_micro_batch=30)
    seen: list[int] = []
    for number, step in enumerate(plan.steps):
        assert len({len(rank) for rank in step.micro_batches}) == 1
        sizes = [sum(map(len, rank)) for rank in step.micro_batches]
        assert max(sizes) - min(sizes) <= 1
        members = [sample for rank in step.micro_batches for bins in rank for sample in bins]
        assert all(groups[sample] // per == number for sample in members)
        assert all(lengths[list(bins)].sum() <= 30 for rank in step.micro_batches for bins in rank if bins)
        assert step.num_loss_tokens == tokens[members].sum() if members else step.num_loss_tokens == 0
        seen += members
    assert sorted(seen) == np.flatnonzero(tokens).tolist()
