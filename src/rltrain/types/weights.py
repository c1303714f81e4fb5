"""How weights are laid out on their way from trainer to engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor under its Hugging Face name."""

    name: str
    dtype: str
    """torch's name without the prefix, e.g. `bfloat16`."""
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor's place in a bucket."""

    spec: TensorSpec
    offset: int


@dataclass(frozen=True, slots=True)
class Bucket:
    tensors: tuple[Placed, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The buckets of a sync, the same on both sides."""

    buckets: tuple[Bucket, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(placed.spec.name for bucket in self.buckets for placed in bucket.tensors)

    @property
    def slot_bytes(self) -> int:
        """Size of the shared buffer that holds the largest bucket."""
        return max(bucket.num_bytes for bucket in self.buckets)


@dataclass(frozen=True, slots=True)
class Canary:
    """How trainer and engine differ in log-probs of the fixed prompt, for the engine where the mean is largest."""

    mean: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    num_bytes: int
    verified: bool
    """Checksums of all bytes were compared."""
