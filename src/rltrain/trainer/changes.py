"""What differs between the config of a saved step and that of the run which goes on from it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rltrain.config.dump import flat

SAFE = (
    "run.name",
    "run.directory",
    "run.max_wall_time",
    "cluster",
    "reward.workers",
    "reward.timeout_s",
    "reward.max_failed_share",
    "rollout.engines",
    "rollout.tensor_parallel",
    "rollout.context_length",
    "rollout.kv_cache_bytes",
    "rollout.sleep",
    "rollout.threads",
    "rollout.timeout_s",
    "actor.parallel",
    "actor.recompute",
    "actor.optimizer.offload",
    "actor.threads",
    "actor.tokens_per_micro_batch",
    "actor.micro_batches",
    "actor.share_prompts",
    "weight_sync",
    "eval",
    "checkpoint",
    "telemetry",
    "profile",
)
"""Sections and keys that say where and how fast a run goes, or what is kept of it, and not what is computed."""
TRAINED = ("actor.train_only", "actor.freeze")
"""Which tensors have moments."""
STEPS = "run.steps"
SCHEDULE = "actor.optimizer.schedule"


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    before: str | None
    """As JSON; None where there was no such key."""
    now: str | None
    safe: bool
    """What is computed stays the same, apart from rounding."""

    def __str__(self) -> str:
        effect = "safe" if self.safe else "from here on the run takes another course"
        return f"{self.key}: {self._shown(self.before)} -> {self._shown(self.now)} ({effect})"

    def _shown(self, value: str | None) -> str:
        return "not there" if value is None else value


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Of two resolved configs, in the order of the keys."""
    left, right = flat(before), flat(now)
    keys = [key for key in dict.fromkeys([*left, *right]) if left.get(key) != right.get(key)]
    return [Change(key, left.get(key), right.get(key), _safe(key, right)) for key in keys]


def _safe(key: str, now: Mapping[str, str]) -> bool:
    if key == STEPS:  # a decay may end with the run
        return now.get(f"{SCHEDULE}.kind") == '"constant"' or now.get(f"{SCHEDULE}.decay_steps", "null") != "null"
    return any(_below(key, safe) for safe in SAFE)


def newly_trained(found: list[Change]) -> Iterator[Change]:
    """Those after which tensors may be trained that have no moments."""
    return (change for change in found if any(_below(change.key, key) for key in TRAINED))


def _below(key: str, section: str) -> bool:
    return key == section or key.startswith((f"{section}.", f"{section}["))
