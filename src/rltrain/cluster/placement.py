"""Which worker gets which share of the machine: a pure plan, and its translation into Ray's options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One worker's name and what it may use."""

    name: str
    num_gpus: float
    """A share of a GPU, where trainer and engine take turns on one; 0 on a CPU."""
    num_threads: int


@dataclass(frozen=True, slots=True)
class Placement:
    trainers: tuple[WorkerShare, ...]
    engines: tuple[WorkerShare, ...]


def plan_placement(
    *,
    num_trainers: int,
    num_engines: int,
    num_gpus: int,
    num_cores: int,
    trainer_threads: int | None,
    engine_threads: int | None,
) -> Placement:
    """Trainers and engines take turns (the synchronous loop), so each kind has the whole machine to itself.

    Where they are more than the GPUs, each holds the same part of one in Ray's accounts.
    """
    gpu_share = min(1.0, _rounded_down(num_gpus / (num_trainers + num_engines)))
    return Placement(
        trainers=_shares("trainer", num_trainers, gpu_share, trainer_threads or max(1, num_cores // num_trainers)),
        engines=_shares("engine", num_engines, gpu_share, engine_threads or max(1, num_cores // num_engines)),
    )


def _rounded_down(share: float) -> float:
    """To the hundredths, so that the parts of a GPU never add up to more than it."""
    return math.floor(share * 100) / 100


def _shares(kind: str, count: int, num_gpus: float, num_threads: int) -> tuple[WorkerShare, ...]:
    return tuple(WorkerShare(f"{kind}-{rank}", num_gpus, num_threads) for rank in range(count))


def actor_options(share: WorkerShare, environment: dict[str, str]) -> dict[str, Any]:
    """Ray's options for the worker's actor; it is never restarted behind the run's back."""
    return {
        "num_cpus": 0,
        "num_gpus": share.num_gpus,
        "max_restarts": 0,
        "runtime_env": {"env_vars": environment},
    }
