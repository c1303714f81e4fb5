from __future__ import annotations

from rltrain.checkpoint.retention import Retention

NONE: dict[int, float | None] = dict.fromkeys([10, 20, 30, 40])


def test_everything_stays_unless_told_otherwise() -> None:
    assert Retention().kept(NONE) == {10, 20, 30, 40}


def test_the_newest_stay_by_number() -> None:
    assert Retention(keep_last=2).kept(dict.fromkeys([9, 100, 10])) == {10, 100}
    assert Retention(keep_last=0).kept(NONE) == {40}


def test_multiples_stay_beside_the_newest() -> None:
    assert Retention(keep_last=1, keep_every=20).kept(dict.fromkeys([10, 20, 30, 40, 50])) == {20, 40, 50}


def test_ckp_11_the_best_stay_and_those_without_a_metric_only_fill_up() -> None:
    """CKP-11: {10: .5, 20: none, 30: .4, 40: none} keeps 10, 30 and the newest."""
    judged = {10: 0.5, 20: None, 30: 0.4, 40: None}
    assert Retention(keep_last=1, keep_best=2).kept(judged) == {10, 30, 40}
    assert Retention(keep_last=1, keep_best=3).kept({**judged, 50: None}) == {10, 30, 50}
    assert Retention(keep_last=1, keep_best=1, mode="min").kept(judged) == {30, 40}
    assert Retention(keep_last=1, keep_best=1).kept({10: float("nan"), 20: 0.1, 30: None}) == {20, 30}
