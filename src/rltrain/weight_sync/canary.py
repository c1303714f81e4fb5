"""The fixed prompt that trainer and engines score after each sync: equal log-probs prove that weights arrived."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rltrain.types.errors import RunError
from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import Canary, SyncPlan

STRIDE = 7919
"""A prime, so that the ids wander over all of the vocabulary."""
LIMITS = {"float32": 1e-3, "bfloat16": 1.0}
"""Most that two implementations' log-probs may differ by in the mean, by the weights' dtype.

The ids make no sense as text, so a trained model gives them log-probs of -10 to -20, where bfloat16's logits are a
sixteenth apart: SmolLM2-135M differs from itself in float32 by 0.2 in the mean and by 2.4 at one of 15 tokens. What a
sync can spoil, a tensor that is missing or old, differs by several.
"""


def canary_ids(num_tokens: int, *, vocab_size: int) -> Ids:
    return ((np.arange(num_tokens, dtype=np.int64) * STRIDE + 1) % vocab_size).astype(np.int32)


def canary_limit(plan: SyncPlan) -> float:
    """That of the least exact dtype among the weights."""
    dtypes = {placed.spec.dtype for bucket in plan.buckets for placed in bucket.tensors}
    return max(LIMITS.get(dtype, LIMITS["bfloat16"]) for dtype in dtypes)


def compared(trainer: Floats, engines: Mapping[str, Floats], *, limit: float) -> Canary:
    """Raises RunError naming the engine and what to look at where the mean exceeds `limit`."""
    found = {engine: _difference(trainer, scores) for engine, scores in engines.items()}
    name, worst = max(found.items(), key=lambda item: item[1].mean)
    if worst.mean <= limit:
        return worst
    raise RunError(
        f"after the weight sync, {name} and the trainer differ by {worst.mean:.3g} in the mean of the same tokens' "
        f"log-probs (weight_sync.canary_limit is {limit:g}). Suspects: weights that the engine packed before the sync "
        "and kept (tied output layer, experts), a wrong mapping of a weight's name or layout, rotary embedding or norm "
        "settings that the two read differently, an engine argument in rollout.vllm that changes numerics"
    )


def _difference(trainer: Floats, engine: Floats) -> Canary:
    """Infinite where either has no number, so that it counts as the worst."""
    if len(trainer) != len(engine):
        return Canary(float("inf"), float("inf"))
    absolute = np.abs(trainer.astype(np.float64) - engine)
    if not np.isfinite(absolute).all():
        return Canary(float("inf"), float("inf"))
    return Canary(float(absolute.mean()), float(absolute.max()))
