from __future__ import annotations

from collections.abc import Callable

import pytest

from rltrain.telemetry.eval_metrics import eval_metrics, pass_at_k
from rltrain.types.sample import Sample, SampleGroup, Status

MakeSample = Callable[..., Sample]
MakeGroup = Callable[..., SampleGroup]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (4, 0.785714), (8, 1.0)])
def test_log_09_pass_at_k_is_unbiased(k: int, expected: float) -> None:
    assert pass_at_k(8, 2, k=k) == pytest.approx(expected, abs=1e-6)


def test_log_09_k_beyond_the_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@4 needs at least 4 samples, there are 3"):
        pass_at_k(3, 1, k=4)


def test_log_09_ragged_groups_count_by_their_own_size(make_sample: MakeSample, make_group: MakeGroup) -> None:
    full = make_group(*(make_sample(reward=reward) for reward in (1.0, 0.0, 0.0, 0.0)))
    lost = make_sample(reward=None, status=Status.REWARD_ERROR)
    ragged = make_group(make_sample(reward=1.0), make_sample(reward=0.0), lost, lost)
    metrics = eval_metrics([full, ragged], pass_at=(1, 2, 4, 8), threshold=1.0)
    assert metrics["pass@1"] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert metrics["pass@2"] == pytest.approx((1 / 2 + 1) / 2)
    assert metrics["pass@4"] == 1.0, "only the full group has four scored samples"
    assert "pass@8" not in metrics
    assert metrics["failed"] == 0.25
    assert metrics["reward_mean"] == pytest.approx(2 / 6)


def test_a_response_passes_from_the_threshold_on(make_sample: MakeSample, make_group: MakeGroup) -> None:
    groups = [make_group(make_sample(reward=reward)) for reward in (0.4, 0.5, 0.9)]
    assert eval_metrics(groups, pass_at=(1,), threshold=0.5)["pass@1"] == pytest.approx(2 / 3)
