import pytest

from rltrain.types.metrics import Max, Mean, merged, values


def test_log_03_one_division_after_all_sums():
    parts = [{"entropy": Mean(3.0, 2)}, {"entropy": Mean(1.0, 8)}]
    assert values(merged(parts))["entropy"] == pytest.approx(0.4)


def test_log_03_nothing_counted_is_absent_not_nan():
    assert values(merged([{"entropy": Mean(0.0, 0)}, {"entropy": Mean(0.0, 0)}])) == {}


def test_adv_12_token_mean_over_unequal_micro_batches():
    assert Mean(50.0, 100) + Mean(270.0, 900) == Mean(320.0, 1000)
    assert (Mean(50.0, 100) + Mean(270.0, 900)).value == pytest.approx(0.32)


def test_maxima_are_kept():
    assert values(merged([{"m": Max(0.5)}, {"m": Max(2.0)}, {"m": Max(1.0)}])) == {"m": 2.0}
