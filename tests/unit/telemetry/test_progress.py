import pytest

from rltrain.telemetry.progress import Pace, bar_cells, duration, shown_columns, time_shares


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (80, "1m20s"), (3600, "1h00m"), (11100, "3h05m")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_one_slow_step_hardly_moves_the_estimate() -> None:
    pace = Pace(100)
    for step in range(1, 10):
        pace.after(step, step_s=1.0)
    assert pace.after(10, step_s=50.0) == "1m30s"


def test_nothing_is_left_after_the_last_step() -> None:
    assert Pace(5).after(5, step_s=1.0) == "0s"


def test_columns_that_a_step_lacks_are_left_out() -> None:
    assert shown_columns({"reward/mean": 0.5, "throughput/tokens_per_s": 12345.6}) == [
        ("reward", "0.500"),
        ("tok/s", "12,346"),
    ]
    assert ("kl", "0.0125") in shown_columns({"kl/reference": 0.0125})


def test_time_shares_add_up_to_the_step() -> None:
    metrics = {"time/step_s": 2.0, "time/rollout_s": 1.0, "time/update_s": 0.5, "time/other_s": 0.5, "time/sync_s": 0.0}
    assert time_shares(metrics) == [("rollout", 0.5), ("update", 0.25), ("other", 0.25)]
    assert time_shares({}) == []


@pytest.mark.parametrize("shares", [[1 / 3] * 3, [0.999, 0.0005, 0.0005], [0.5, 0.3, 0.2], [1.0]])
def test_the_bar_has_exactly_its_width(shares: list[float]) -> None:
    cells = bar_cells([(str(i), share) for i, share in enumerate(shares)], width=48)
    assert sum(count for _, count in cells) == 48
    assert all(abs(count - share * 48) < 1 for (_, count), share in zip(cells, shares, strict=True))
