from __future__ import annotations

import numpy as np
import pytest

from rltrain.types.errors import RunError
from rltrain.types.weights import Canary, SyncPlan, TensorSpec
from rltrain.weight_sync.canary import canary_ids, canary_limit, compared
from rltrain.weight_sync.plan import plan_buckets


def floats(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


def plan_of(*dtypes: str) -> SyncPlan:
    return plan_buckets([TensorSpec(f"t{place}", dtype, (1,), 4) for place, dtype in enumerate(dtypes)], 1000)


def test_ids_are_in_the_vocabulary_and_differ() -> None:
    ids = canary_ids(16, vocab_size=100)
    assert ids.min() >= 0
    assert ids.max() < 100
    assert len(set(ids.tolist())) == 16


def test_the_least_exact_dtype_sets_the_limit() -> None:
    assert canary_limit(plan_of("float32")) == 1e-3
    assert canary_limit(plan_of("float32", "bfloat16")) == 1.0


def test_the_worst_engine_counts() -> None:
    engines = {"engine_0": floats(-1, -2), "engine_1": floats(-1, -2.25)}
    assert compared(floats(-1, -2), engines, limit=0.5) == Canary(mean=0.125, largest=0.25)


@pytest.mark.parametrize("bad", [floats(-1, -9), floats(-1, float("nan")), floats(-1, float("-inf")), floats(-1)])
def test_beyond_the_limit_the_engine_and_suspects_are_named(bad: np.ndarray) -> None:
    with pytest.raises(RunError, match=r"engine_1 and the trainer differ.*Suspects"):
        compared(floats(-1, -2), {"engine_0": floats(-1, -2), "engine_1": bad}, limit=0.5)
