"""The fixed prompt that trainer and engines score after each sync: equal log-probs prove that weights arrived."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rltrain.types.errors import RunError
from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import SyncPlan

STRIDE = 7919
"""A prime, so that the ids wander over all of the vocabulary."""
LIMITS = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest difference of two implementations' log-probs by the weights' dtype; measured 1e-5 and 0.2 at most."""


def canary_ids(num_tokens: int, *, vocab_size: int) -> Ids:
    return ((np.arange(num_tokens, dtype=np.int64) * STRIDE + 1) % vocab_size).astype(np.int32)


def canary_limit(plan: SyncPlan) -> float:
    """That of the least exact dtype among the weights."""
    dtypes = {placed.spec.dtype for bucket in plan.buckets for placed in bucket.tensors}
    return max(LIMITS.get(dtype, LIMITS["bfloat16"]) for dtype in dtypes)


def largest_difference(trainer: Floats, engines: Mapping[str, Floats], *, limit: float) -> float:
    """Over all engines and tokens. Raises RunError naming the engine and what to look at where it exceeds `limit`."""
    worst, name = max((_difference(trainer, found), engine) for engine, found in engines.items())
    if worst <= limit:
        return worst
    raise RunError(
        f"after the weight sync, {name} and the trainer differ by {worst:.3g} in the log-probs of the same tokens "
        f"(weight_sync.canary_limit is {limit:g}). Suspects: weights that the engine packed before the sync and kept "
        "(tied output layer, experts), a wrong mapping of a weight's name or layout, rotary embedding or norm "
        "settings that the two read differently, an engine argument in rollout.vllm that changes numerics"
    )


def _difference(trainer: Floats, engine: Floats) -> float:
    """Infinite where either has no number, so that it counts as the worst."""
    if len(trainer) != len(engine):
        return float("inf")
    worst = float(np.abs(trainer.astype(np.float64) - engine).max())
    return worst if np.isfinite(worst) else float("inf")
