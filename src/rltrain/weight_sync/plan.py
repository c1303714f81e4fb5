"""Cuts a model's tensors into buckets, by size and order alone."""

from __future__ import annotations

from collections.abc import Sequence

from rltrain.types.weights import Bucket, Placed, SyncPlan, TensorSpec

ALIGNMENT = 64
"""Bytes; offsets are multiples of it, so that every dtype can be viewed in place."""


def plan_buckets(specs: Sequence[TensorSpec], bucket_bytes: int) -> SyncPlan:
    """Fills buckets in order; a tensor larger than `bucket_bytes` gets one of its own."""
    if not specs:
        raise ValueError("there are no tensors to send")
    repeated = len(specs) - len({spec.name for spec in specs})
    if repeated:
        raise ValueError(f"{repeated} of the tensors' names appear more than once")
    buckets: list[Bucket] = []
    placed: list[Placed] = []
    end = 0
    for spec in specs:
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        if placed and offset + spec.num_bytes > bucket_bytes:
            buckets.append(Bucket(tuple(placed), end))
            placed, offset = [], 0
        placed.append(Placed(spec, offset))
        end = offset + spec.num_bytes
    return SyncPlan((*buckets, Bucket(tuple(placed), end)))
