"""The trainer's side: writes weights into shared slots, bucket by bucket, after a look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch

from rltrain.types.errors import RunError
from rltrain.types.weights import Bucket, Placed, TensorSpec
from rltrain.weight_sync.plan import plan_buckets
from rltrain.weight_sync.slots import Slot, WritableSlot

Tensors = Iterator[tuple[str, torch.Tensor]]


def tensor_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(name, dtype, tuple(tensor.shape), tensor.numel() * tensor.element_size())


class BucketSender:
    """Owns the slots: one, or two that take turns where there are several buckets.

    `tensors()` gives the weights in the order of `specs`, anew for each sync. Where several ranks hold the weights, the
    others follow (`BucketFollower`). `make_slot` gives a slot of so many bytes.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        tensors: Callable[[], Tensors],
        bucket_bytes: int,
        *,
        make_slot: Callable[[int], WritableSlot] = Slot,
    ) -> None:
        self.plan = plan_buckets(specs, bucket_bytes)
        self._tensors = tensors
        self._source: Tensors | None = None
        count = min(2, len(self.plan.buckets))
        self._slots = [make_slot(self.plan.slot_bytes) for _ in range(count)]

    def slot_paths(self) -> list[str]:
        """Bucket i goes through slot i modulo their number."""
        return [slot.path for slot in self._slots]

    def write(self, index: int, *, verify: bool) -> int | None:
        """Writes a bucket into its slot, in the order of their numbers; its checksum if `verify`.

        Raises RunError naming the tensor that isn't finite or isn't the planned one. Nothing of the sync has been sent
        then: with several buckets, the first call looks at all of the weights.
        """
        bucket = self.plan.buckets[index]
        if index == 0:
            if len(self.plan.buckets) > 1:
                _check_finite(self._tensors())
            self._source = self._tensors()
        assert self._source is not None, f"bucket {index} came before bucket 0"
        slot = self._slots[index % len(self._slots)]
        _fill(slot.tensor, bucket, self._source)
        if len(self.plan.buckets) == 1:
            _check_finite((placed.spec.name, placed_tensor(slot.tensor, placed)) for placed in bucket.tensors)
        if index == len(self.plan.buckets) - 1:
            self._close_source()
        slot.finish()
        return slot.checksum(bucket.num_bytes) if verify else None

    def close(self) -> None:
        for slot in self._slots:
            slot.close()

    def _close_source(self) -> None:
        assert self._source is not None
        left = next(self._source, None)
        self._source = None
        if left is not None:
            raise RunError(f"weight sync: the trainer has {left[0]}, which isn't planned")


class BucketFollower:
    """A rank that has a part of the weights: iterates as often and as far as the `BucketSender` of another does."""

    def __init__(self, specs: Sequence[TensorSpec], tensors: Callable[[], Tensors], bucket_bytes: int) -> None:
        self._plan = plan_buckets(specs, bucket_bytes)
        self._tensors = tensors
        self._source: Tensors = iter(())

    def write(self, index: int, *, verify: bool) -> None:
        buckets = self._plan.buckets
        if index == 0:
            if len(buckets) > 1:
                deque(self._tensors(), maxlen=0)
            self._source = self._tensors()
        deque(islice(self._source, len(buckets[index].tensors)), maxlen=0)
        if index == len(buckets) - 1:
            deque(self._source, maxlen=0)

    def close(self) -> None:
        self._source = iter(())


def first_not_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Name of the first tensor with a NaN or an infinity; a pass without temporaries and one wait for the device."""
    names: list[str] = []
    extremes: list[torch.Tensor] = []
    for name, tensor in tensors:
        if tensor.numel() and tensor.is_floating_point():
            names.append(name)
            extremes.extend(extreme.float() for extreme in torch.aminmax(tensor.detach()))  # NaN wins
    if not names:
        return None
    finite = torch.isfinite(torch.stack(extremes)).view(-1, 2).all(1)
    return None if bool(finite.all()) else names[int(finite.int().argmin())]


def placed_tensor(data: torch.Tensor, placed: Placed) -> torch.Tensor:
    """A tensor's place in a bucket's bytes."""
    spec = placed.spec
    raw = data[placed.offset : placed.offset + spec.num_bytes]
    return raw.view(getattr(torch, spec.dtype)).view(spec.shape)


def _fill(data: torch.Tensor, bucket: Bucket, source: Tensors) -> None:
    with torch.no_grad():
        for placed in bucket.tensors:
            name, tensor = _next(source, placed)
            found = tensor_spec(name, tensor)
            if found != placed.spec:
                raise RunError(f"weight sync: the trainer gave {_shown(found)} where {_shown(placed.spec)} is planned")
            placed_tensor(data, placed).copy_(tensor)


def _next(source: Tensors, placed: Placed) -> tuple[str, torch.Tensor]:
    found = next(source, None)
    if found is None:
        raise RunError(f"weight sync: the trainer's weights end before {placed.spec.name}")
    return found


def _check_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    name = first_not_finite(tensors)
    if name is not None:
        rule = f"{name} has values that are NaN or infinite; the engines keep the weights they have"
        raise RunError(f"weight sync: {rule}")


def _shown(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.dtype}{list(spec.shape)}"
