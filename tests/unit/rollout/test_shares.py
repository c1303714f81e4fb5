from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rltrain.rollout.shares import MOST_CALLS_PER_ENGINE, TOKENS_PER_CALL, split_over_engines


@given(st.integers(0, 200), st.integers(1, 5), st.integers(1, 100_000), st.booleans())
def test_every_group_is_sent_once_in_order_and_engines_get_equal_shares(
    num_groups: int, num_engines: int, tokens_per_group: int, one_call: bool
) -> None:
    calls = split_over_engines(
        num_groups, num_engines=num_engines, tokens_per_group=tokens_per_group, one_call=one_call
    )
    assert [place for call in calls for place in range(call.start, call.end)] == list(range(num_groups))
    shares = [sum(call.end - call.start for call in calls if call.engine == engine) for engine in range(num_engines)]
    assert sum(shares) == num_groups
    used = [share for share in shares if share]
    assert not used or max(used) - min(used) <= 1
    assert len(used) == min(num_engines, num_groups)


def test_a_small_step_is_one_call_to_each_engine() -> None:
    calls = split_over_engines(32, num_engines=2, tokens_per_group=8 * 4, one_call=False)
    assert [(call.engine, call.start, call.end) for call in calls] == [(0, 0, 16), (1, 16, 32)]


def test_a_big_step_is_several_calls_unless_one_is_asked_for() -> None:
    sizes = {"num_engines": 1, "tokens_per_group": TOKENS_PER_CALL}
    assert len(split_over_engines(64, **sizes, one_call=False)) == MOST_CALLS_PER_ENGINE
    assert len(split_over_engines(64, **sizes, one_call=True)) == 1
