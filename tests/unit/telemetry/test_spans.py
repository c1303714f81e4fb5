import time

import pytest

from rltrain.telemetry.spans import SPANS, StepClock


class FakeTime:
    """A clock in seconds that only moves when told."""

    def __init__(self) -> None:
        self.now_s = 100

    def __call__(self) -> int:
        return self.now_s * 10**9


def test_a_steps_spans_and_the_remainder_add_up_to_its_wall_time() -> None:
    now = FakeTime()
    clock = StepClock(now_ns=now)
    now.now_s += 1
    with clock.span("rollout"):
        now.now_s += 5
    with clock.span("update"):
        now.now_s += 3
    now.now_s += 2
    times = clock.finish()
    assert times["time/step_s"] == 11
    assert (times["time/rollout_s"], times["time/update_s"], times["time/other_s"]) == (5, 3, 3)
    assert set(times) == {f"time/{name}_s" for name in ("step", *SPANS, "other")}
    assert sum(value for name, value in times.items() if name != "time/step_s") == times["time/step_s"]


def test_nested_spans_count_for_the_innermost_alone() -> None:
    now = FakeTime()
    clock = StepClock(now_ns=now)
    with clock.span("eval"):
        now.now_s += 1
        with clock.span("reward"):
            now.now_s += 4
        now.now_s += 2
    times = clock.finish()
    assert (times["time/eval_s"], times["time/reward_s"], times["time/step_s"]) == (3, 4, 7)


def test_a_span_that_raises_is_counted_and_closed() -> None:
    now = FakeTime()
    clock = StepClock(now_ns=now)
    with pytest.raises(RuntimeError), clock.span("sync"):
        now.now_s += 2
        raise RuntimeError
    now.now_s += 1
    times = clock.finish()
    assert (times["time/sync_s"], times["time/other_s"]) == (2, 1)


def test_time_between_two_steps_belongs_to_the_next() -> None:
    now = FakeTime()
    clock = StepClock(now_ns=now)
    now.now_s += 1
    clock.finish()
    now.now_s += 6
    assert clock.finish()["time/step_s"] == 6


def test_restart_forgets_what_was_counted() -> None:
    now = FakeTime()
    clock = StepClock(now_ns=now)
    now.now_s += 9
    clock.restart()
    now.now_s += 1
    assert clock.finish()["time/step_s"] == 1


def test_an_unknown_span_is_refused() -> None:
    with pytest.raises(ValueError, match="'rolout' is none of rollout"), StepClock().span("rolout"):
        pass


def test_real_time_is_in_seconds() -> None:
    clock = StepClock()
    before = time.perf_counter()
    with clock.span("save"):
        time.sleep(0.02)
    times = clock.finish()
    assert 0.02 <= times["time/save_s"] <= time.perf_counter() - before
