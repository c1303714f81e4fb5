from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltrain.types.weights import TensorSpec
from rltrain.weight_sync.plan import ALIGNMENT, plan_buckets


def specs(*sizes: int) -> list[TensorSpec]:
    return [TensorSpec(f"t{place}", "uint8", (size,), size) for place, size in enumerate(sizes)]


def test_tensors_that_fit_share_a_bucket_at_aligned_offsets() -> None:
    plan = plan_buckets(specs(10, 64, 1), 1000)
    (bucket,) = plan.buckets
    assert [placed.offset for placed in bucket.tensors] == [0, 64, 128]
    assert bucket.num_bytes == 129


def test_a_tensor_larger_than_the_bucket_gets_its_own() -> None:
    plan = plan_buckets(specs(10, 500, 10), 100)
    assert [len(bucket.tensors) for bucket in plan.buckets] == [1, 1, 1]
    assert plan.slot_bytes == 500


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(64, 400))
def test_every_tensor_is_placed_once_in_order_without_overlap(sizes: list[int], bucket_bytes: int) -> None:
    plan = plan_buckets(specs(*sizes), bucket_bytes)
    assert [placed.spec.name for bucket in plan.buckets for placed in bucket.tensors] == [
        f"t{place}" for place in range(len(sizes))
    ]
    for bucket in plan.buckets:
        end = 0
        for placed in bucket.tensors:
            assert placed.offset >= end
            assert placed.offset % ALIGNMENT == 0
            end = placed.offset + placed.spec.num_bytes
        assert bucket.num_bytes == end
        assert end <= bucket_bytes or len(bucket.tensors) == 1


def test_repeated_names_are_refused() -> None:
    with pytest.raises(ValueError, match="more than once"):
        plan_buckets([*specs(1), *specs(1)], 100)


def test_a_model_without_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="no tensors"):
        plan_buckets([], 100)
