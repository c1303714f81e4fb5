from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rltrain.types.errors import RunError
from rltrain.weight_sync.checksum import checksum
from rltrain.weight_sync.sender import BucketSender, first_not_finite, placed_tensor, tensor_spec
from rltrain.weight_sync.slots import AttachedSlot

ONE_BUCKET = 2**20
ONE_TENSOR = 64


class Model:
    """Named weights that a test changes between syncs."""

    def __init__(self) -> None:
        self.weights = {
            "embed": torch.arange(12, dtype=torch.bfloat16).view(3, 4),
            "norm": torch.arange(5, dtype=torch.float32),
            "head": torch.arange(6, dtype=torch.float32).view(2, 3).T,
        }

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.weights.items()

    def sender(self, bucket_bytes: int) -> BucketSender:
        specs = [tensor_spec(name, tensor) for name, tensor in self.weights.items()]
        return BucketSender(specs, self.tensors, bucket_bytes)


def received(sender: BucketSender) -> dict[str, torch.Tensor]:
    """Everything that a reader finds, bucket after bucket."""
    slots = [AttachedSlot(path) for path in sender.slot_paths()]
    found: dict[str, torch.Tensor] = {}
    for index, bucket in enumerate(sender.plan.buckets):
        sender.write(index, verify=False)
        for placed in bucket.tensors:
            found[placed.spec.name] = placed_tensor(slots[index % len(slots)].tensor, placed).clone()
    return found


@pytest.mark.parametrize("bucket_bytes", [ONE_BUCKET, ONE_TENSOR])
def test_a_reader_gets_every_tensor_in_every_sync(bucket_bytes: int) -> None:
    model = Model()
    sender = model.sender(bucket_bytes)
    for _ in range(3):
        found = received(sender)
        assert found.keys() == model.weights.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in model.weights.items())
        model.weights = {name: tensor + 1 for name, tensor in model.weights.items()}


def test_one_bucket_needs_one_slot_and_several_take_turns_in_two() -> None:
    assert len(Model().sender(ONE_BUCKET).slot_paths()) == 1
    sender = Model().sender(ONE_TENSOR)
    assert len(sender.plan.buckets) == 3
    assert len(sender.slot_paths()) == 2


def test_the_checksum_is_of_the_bytes_in_the_slot() -> None:
    sender = Model().sender(ONE_BUCKET)
    (slot,) = [AttachedSlot(path) for path in sender.slot_paths()]
    assert sender.write(0, verify=True) == checksum(slot.view(sender.plan.buckets[0].num_bytes))
    assert sender.write(0, verify=False) is None


@pytest.mark.parametrize("bucket_bytes", [ONE_BUCKET, ONE_TENSOR])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_wsy_08_the_first_call_refuses_weights_that_arent_finite(bucket_bytes: int, value: float) -> None:
    model = Model()
    sender = model.sender(bucket_bytes)
    model.weights["head"][1, 1] = value
    with pytest.raises(RunError, match="head has values that are NaN or infinite"):
        sender.write(0, verify=False)


def test_after_a_refusal_mended_weights_are_sent() -> None:
    model = Model()
    sender = model.sender(ONE_BUCKET)
    model.weights["norm"][0] = float("nan")
    with pytest.raises(RunError, match="norm"):
        sender.write(0, verify=False)
    model.weights["norm"][0] = 4.0
    assert received(sender)["norm"].tolist() == [4.0, 1.0, 2.0, 3.0, 4.0]


def test_wsy_05_a_missing_tensor_is_named() -> None:
    model = Model()
    sender = model.sender(ONE_BUCKET)
    del model.weights["head"]
    with pytest.raises(RunError, match="end before head"):
        sender.write(0, verify=False)


def test_wsy_05_an_unplanned_tensor_is_named() -> None:
    model = Model()
    sender = model.sender(ONE_BUCKET)
    model.weights["extra"] = torch.zeros(1)
    with pytest.raises(RunError, match="extra"):
        sender.write(0, verify=False)


def test_another_shape_or_dtype_than_planned_is_named() -> None:
    model = Model()
    sender = model.sender(ONE_BUCKET)
    model.weights["norm"] = torch.zeros(6)
    with pytest.raises(RunError, match=r"norm float32\[6\] where norm float32\[5\]"):
        sender.write(0, verify=False)


def test_empty_and_integer_tensors_are_finite() -> None:
    assert first_not_finite([("empty", torch.zeros(0)), ("integers", torch.tensor([1, 2]))]) is None


def test_the_first_tensor_that_isnt_finite_is_named() -> None:
    good, bad = torch.zeros(3), torch.tensor([0.0, float("nan")])
    assert first_not_finite([("a", good), ("b", bad), ("c", bad)]) == "b"
