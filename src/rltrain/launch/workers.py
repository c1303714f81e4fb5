"""The processes of a run: what each is made from, where it is placed, and their start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rltrain.backends.megatron.setup import SavedStart, TrainSetup, WorkerInfo
from rltrain.backends.vllm.environment import engine_environment
from rltrain.backends.vllm.setup import EngineInfo, EngineSetup
from rltrain.cluster.placement import Demand, plan_placement
from rltrain.cluster.session import Session
from rltrain.concurrency import together
from rltrain.config.algorithm import ReferenceKL
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.launch.draws import Rewarders
from rltrain.rollout.seeds import engine_seed
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.trainer.gpu_memory import BUCKET_BYTES, GpuPlan, plan_gpu, shares_gpus
from rltrain.trainer.preparation import Prepared, context_length, kv_cache_bytes, max_sequences

if TYPE_CHECKING:  # importing it loads Ray, which reads its environment at that moment
    from rltrain.cluster.group import EngineHandle, TrainerGroup


TRAINER = "rltrain.backends.megatron.worker:TrainWorker"
ENGINE = "rltrain.backends.vllm.engine:VllmEngine"


@dataclass(frozen=True, slots=True)
class Workers:
    trainers: TrainerGroup
    engines: list[EngineHandle]
    engines_sleep: bool


def make_workers(
    args: Args,
    prepared: Prepared,
    machine: Machine,
    session: Session,
    directory: RunDirectory,
    saved: SavedStart | None,
) -> Workers:
    from rltrain.cluster.group import EngineHandle, TrainerGroup

    logs = directory.logs
    plan = plan_gpu(args, prepared.spec, machine, max_sequences=max_sequences(args, prepared))
    demand = Demand(
        num_trainers=args.actor.parallel.world_size,
        tensor=args.actor.parallel.tensor,
        num_engines=args.rollout.engines,
        gpus_per_engine=args.rollout.tensor_parallel,
        trainer_threads=args.actor.threads,
        engine_threads=args.rollout.threads,
    )
    placement = plan_placement(demand, session.nodes(), device=machine.device)
    common = session.worker_environment | {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    engine_setup = _engine_setup(args, prepared, machine, plan)
    train_setup = _train_setup(args, machine, plan, directory.path / "profile", start=saved)
    trainers = TrainerGroup(placement.trainers, target=TRAINER, setup=train_setup, environment=common, logs=logs)
    engines = [
        EngineHandle(
            share,
            target=ENGINE,
            setup=replace(engine_setup, seed=engine_seed(args.run.seed, engine=number)),
            environment=common | engine_environment(device=machine.device, threads=share.num_threads),
            logs=logs,
            max_concurrency=1000,
        )
        for number, share in enumerate(placement.engines)
    ]
    return Workers(trainers, engines, engine_setup.sleeps)


async def start_all(args: Args, workers: Workers, rewarders: Rewarders) -> dict[str, int]:
    """Brings all workers up at once; their process ids by name."""
    timeout_s = args.cluster.start_timeout_s
    ranks: Sequence[WorkerInfo]
    infos: Sequence[EngineInfo]
    ranks, infos, _ = await together(
        workers.trainers.join(timeout_s=timeout_s),
        together(*(engine.start(timeout_s=timeout_s) for engine in workers.engines)),
        rewarders.start(),
    )
    trainers = {worker.name: info.pid for worker, info in zip(workers.trainers.workers, ranks, strict=True)}
    engines = {engine.name: info.pid for engine, info in zip(workers.engines, infos, strict=True)}
    return {"driver": os.getpid(), **trainers, **engines}


def _train_setup(
    args: Args, machine: Machine, plan: GpuPlan | None, profiles: Path, *, start: SavedStart | None
) -> TrainSetup:
    kl = args.algorithm.kl
    per_step = args.rollout.prompts_per_step // (args.algorithm.prompts_per_update or args.rollout.prompts_per_step)
    # Handles of GPU memory reach as far as one GPU; elsewhere weights go through the host's shared memory.
    on_one_gpu = shares_gpus(args, machine) and machine.num_gpus == 1
    return TrainSetup(
        role=args.actor,
        algorithm=args.algorithm,
        weight_sync=args.weight_sync,
        temperature=args.rollout.temperature,
        seed=args.run.seed,
        total_updates=args.run.steps * per_step,
        deterministic=args.run.deterministic,
        device=machine.device,
        needs_reference=isinstance(kl, ReferenceKL),
        reference_path=kl.reference if isinstance(kl, ReferenceKL) else None,
        start=start,
        bucket_bytes=BUCKET_BYTES if on_one_gpu else 256 * 2**20,
        shares_gpu=on_one_gpu,
        yields_memory=plan is not None and plan.sleeps,
        profile=args.profile,
        profile_directory=profiles,
    )


def _engine_setup(args: Args, prepared: Prepared, machine: Machine, plan: GpuPlan | None) -> EngineSetup:
    on_gpu = args.rollout.kv_cache_bytes if plan is None else plan.cache_bytes
    return EngineSetup(
        model_path=args.actor.model.path,
        dtype=args.actor.model.dtype,
        device=machine.device,
        random_init=True,  # whatever the trainer starts from, its first sync brings the weights
        context_length=context_length(args, prepared.spec),
        kv_cache_bytes=kv_cache_bytes(args, prepared) if machine.device == "cpu" else on_gpu,
        max_sequences=max_sequences(args, prepared),
        tensor_parallel=args.rollout.tensor_parallel,
        vocab_limit=prepared.tokenizer.vocab_size,
        seed=args.run.seed,
        deterministic=args.run.deterministic,
        gpu_share=None if plan is None else plan.engine_share,
        sleeps=plan is not None and plan.sleeps,
        stop_texts=_any_stop_texts(args),
        arguments=args.rollout.vllm,
    )


def _any_stop_texts(args: Args) -> bool:
    evaluations = args.eval.sets.values() if args.eval is not None else ()
    return any(sampling.stop for sampling in (args.rollout, *(config.sampling for config in evaluations)))
