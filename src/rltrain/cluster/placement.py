"""Which worker runs where, with which share of the machine: a pure plan, and its translation into Ray's options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rltrain.config.errors import UserError

TRAINER_SHARE = 0.51
"""Of a GPU that engines use too: more than half, so that Ray never puts two ranks on one, which NCCL refuses."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    name: str
    """Ray's id of it."""
    num_gpus: int
    """That the run may use."""
    num_cores: int


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One worker's name, its place and what it may use."""

    name: str
    node: str
    num_gpus: float
    """Whole ones, or a share of one where trainer and engines take turns on it; 0 on a CPU."""
    num_threads: int


@dataclass(frozen=True, slots=True)
class Placement:
    trainers: tuple[WorkerShare, ...]
    """By rank."""
    engines: tuple[WorkerShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a run wants to place."""

    num_trainers: int
    tensor: int
    """Trainer ranks that talk in every layer; neighbours by rank, which belong on one machine."""
    num_engines: int
    gpus_per_engine: int
    trainer_threads: int | None = None
    engine_threads: int | None = None


def plan_placement(demand: Demand, nodes: Sequence[Node], *, device: str) -> Placement:
    """Ranks fill one machine after the other, the largest first, and so do engines on GPUs that no rank has.

    Trainers and engines take turns (the synchronous loop): each kind has all cores to itself, and where GPUs are too
    few for both, engines share those of the ranks. Raises UserError where the machines can't hold them.
    """
    ordered = sorted(nodes, key=lambda node: (-node.num_gpus, -node.num_cores))
    if device == "cpu":
        trainers = _spread(demand.num_trainers, {node.name: node.num_cores for node in ordered})
        engines = _spread(demand.num_engines, {node.name: node.num_cores for node in ordered})
        return _placement(demand, ordered, trainers, engines, trainer_gpus=0, engine_gpus=0)
    trainers = _fill(demand.num_trainers, {node.name: _whole_groups(node.num_gpus, demand.tensor) for node in ordered})
    if trainers is None:
        total = sum(node.num_gpus for node in nodes)
        rule = f"{demand.num_trainers} ranks, of which {demand.tensor} neighbours share a machine, don't fit on the "
        raise UserError.single("actor.parallel", f"{rule}{total} GPUs of {_shown(ordered)}")
    free = {node.name: node.num_gpus - trainers.count(node.name) for node in ordered}
    size = demand.gpus_per_engine
    engines = _fill(demand.num_engines, {name: count // size for name, count in free.items()})
    if engines is not None:
        return _placement(demand, ordered, trainers, engines, trainer_gpus=1, engine_gpus=size)
    return _shared(demand, ordered, trainers)


def _shared(demand: Demand, nodes: Sequence[Node], trainers: list[str]) -> Placement:
    """Engines of one GPU each, as few on one as can be."""
    if demand.gpus_per_engine > 1:
        rule = f"{demand.num_engines} engines of {demand.gpus_per_engine} GPUs find too few that no trainer has on "
        hint = "fewer engines, or 1, which shares a trainer's GPU"
        raise UserError.single("rollout.tensor_parallel", rule + _shown(nodes), hint=hint)
    total = sum(node.num_gpus for node in nodes)
    on_one = -(-demand.num_engines // total)
    engines = _fill(demand.num_engines, {node.name: on_one * node.num_gpus for node in nodes})
    assert engines is not None
    share = int(100 * (1 - TRAINER_SHARE) / on_one) / 100  # rounded down: parts never add up to more than the GPU
    return _placement(demand, nodes, trainers, engines, trainer_gpus=TRAINER_SHARE, engine_gpus=share)


def _whole_groups(num_gpus: int, size: int) -> int:
    """GPUs of a machine that whole groups take; all where a group is larger than it and spans several anyway."""
    return num_gpus // size * size if num_gpus >= size else num_gpus


def _fill(count: int, room: dict[str, int]) -> list[str] | None:
    """The machine of each, in order; None where there is too little room."""
    places = [name for name, places in room.items() for _ in range(places)]
    return places[:count] if count <= len(places) else None


def _spread(count: int, cores: dict[str, int]) -> list[str]:
    """As `_fill`; more than there are cores take turns on them."""
    whole = _fill(sum(cores.values()), cores) or list(cores)
    return sorted((whole[number % len(whole)] for number in range(count)), key=list(cores).index)


def _placement(
    demand: Demand,
    nodes: Sequence[Node],
    trainers: list[str],
    engines: list[str],
    *,
    trainer_gpus: float,
    engine_gpus: float,
) -> Placement:
    return Placement(
        trainers=_shares("trainer", trainers, nodes, trainer_gpus, demand.trainer_threads),
        engines=_shares("engine", engines, nodes, engine_gpus, demand.engine_threads),
    )


def _shares(
    kind: str, places: list[str], nodes: Sequence[Node], num_gpus: float, num_threads: int | None
) -> tuple[WorkerShare, ...]:
    cores = {node.name: max(1, node.num_cores // max(1, places.count(node.name))) for node in nodes}
    return tuple(
        WorkerShare(f"{kind}-{number}", place, num_gpus, num_threads or cores[place])
        for number, place in enumerate(places)
    )


def _shown(nodes: Sequence[Node]) -> str:
    return f"{len(nodes)} machine{'s' if len(nodes) > 1 else ''} with " + " + ".join(
        str(node.num_gpus) for node in nodes
    )


def actor_options(share: WorkerShare, environment: dict[str, str]) -> dict[str, Any]:
    """Ray's options for the worker's actor; it is never restarted behind the run's back."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {
        "num_cpus": 0,
        "num_gpus": share.num_gpus,
        "max_restarts": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(share.node, soft=False),
        "runtime_env": {"env_vars": environment},
    }
