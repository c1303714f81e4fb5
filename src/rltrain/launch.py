"""The composition root, which alone knows every class: from a config to the objects of a run, and to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rltrain.backends.megatron.setup import SavedStart, TrainSetup, WorkerInfo
from rltrain.backends.vllm.environment import engine_environment
from rltrain.backends.vllm.setup import EngineInfo, EngineSetup
from rltrain.checkpoint.state import RunState
from rltrain.cluster.placement import Demand, plan_placement
from rltrain.cluster.session import Session, ray_session
from rltrain.cluster.supervision import supervised
from rltrain.concurrency import together
from rltrain.config.algorithm import ReferenceKL
from rltrain.config.dump import flat, resolved
from rltrain.config.errors import UserError
from rltrain.config.evaluation import EvalSet
from rltrain.config.machine import Machine, this_machine
from rltrain.config.namespace import Args
from rltrain.config.reward import RewardConfig
from rltrain.config.rollout import SamplingConfig
from rltrain.config.rules import TRAINING_STREAM
from rltrain.data.plan import Schedule
from rltrain.rewards.rewarder import Rewarder
from rltrain.rollout.collector import Draw, RolloutCollector
from rltrain.rollout.seeds import engine_seed
from rltrain.telemetry.display import Display, make_display
from rltrain.telemetry.recorder import Recorder
from rltrain.telemetry.run_directory import FIRST_ATTEMPT, RESUME_FLAG, RunDirectory
from rltrain.telemetry.sinks import Sinks, open_sinks
from rltrain.telemetry.spans import StepClock
from rltrain.trainer.estimate import saved_bytes
from rltrain.trainer.evaluate import Evaluator, PreparedSet
from rltrain.trainer.gpu_memory import BUCKET_BYTES, GpuPlan, plan_gpu, shares_gpus
from rltrain.trainer.preparation import Prepared, context_length, kv_cache_bytes, max_sequences, prepare
from rltrain.trainer.resume import Origin, Resumed, choose, find_origin
from rltrain.trainer.saving import ACTOR, Saver
from rltrain.trainer.sync import Parts, SyncTrainer
from rltrain.weight_sync.pusher import WeightPusher

if TYPE_CHECKING:  # importing it loads Ray, which reads its environment at that moment
    from rltrain.cluster.group import EngineHandle, TrainerGroup

TRAINER = "rltrain.backends.megatron.worker:TrainWorker"
ENGINE = "rltrain.backends.vllm.engine:VllmEngine"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run writes and shows."""

    directory: RunDirectory
    sinks: Sinks
    display: Display
    resumed: Resumed | None

    @property
    def step(self) -> int:
        """The last one that is done."""
        return 0 if self.resumed is None else self.resumed.state.step


@dataclass(frozen=True, slots=True)
class Workers:
    trainers: TrainerGroup
    engines: list[EngineHandle]
    engines_sleep: bool


@dataclass(frozen=True, slots=True)
class _Sleep:
    """Puts the engines to sleep where their memory is needed; implements the loop's `Engines`."""

    workers: Workers

    async def sleep(self) -> None:
        if self.workers.engines_sleep:
            await together(*(engine.sleep() for engine in self.workers.engines))


def train(args: Args, *, overwrite: bool, resume: str | None = None) -> Path:
    """Runs the whole training and returns its directory; `resume` is what `--resume` says.

    Raises UserError before the first step, leaving all as it was; RunError when the run fails, KeyboardInterrupt when
    it is stopped.
    """
    origin = None if resume is None else find_origin(args, resume)
    prepared = prepare(args)
    machine = this_machine(args.cluster)
    with ExitStack() as stack:
        directory = _directory(args, origin, overwrite=overwrite)
        stack.callback(directory.release)
        stack.push(partial(_discard_refused, directory))
        resumed = None if origin is None else choose(origin, args, prepared.spec)
        if resumed is not None:
            prepared.cursor.load_state_dict(dict(resumed.state.data))
        display = make_display(num_steps=args.run.steps, name=directory.name)
        stack.callback(display.close)
        display.start()
        display.note(f"writing to {directory.path}")
        if directory.replaced is not None:
            display.note(f"the earlier run is {directory.replaced} until this one has started")
        display.note(f"data: {prepared.train_set.report}")
        if resume is not None:
            _note_resumed(resumed, display)
        if resumed is not None and _finished(args, directory, resumed):
            display.note("the run is finished: all its steps are done and its final weights are written")
            directory.discard()
            return directory.path
        sinks = open_sinks(args, directory)
        stack.callback(sinks.close)
        session = stack.enter_context(ray_session(args.cluster, num_gpus=machine.num_gpus))
        asyncio.run(_run(args, prepared, machine, session, Outputs(directory, sinks, display, resumed)))
    return directory.path


def _directory(args: Args, origin: Origin | None, *, overwrite: bool) -> RunDirectory:
    if origin is None or origin.run is None:
        return RunDirectory.create(args, overwrite=overwrite)
    return RunDirectory.reopen(origin.run)


def _note_resumed(resumed: Resumed | None, display: Display) -> None:
    if resumed is None:
        display.note("there is no saved step yet, so the run starts from its beginning")
        return
    for note in resumed.notes:
        display.note(note)
    display.note(f"going on from {resumed.saved.path}")


def _finished(args: Args, directory: RunDirectory, resumed: Resumed) -> bool:
    in_place = resumed.saved.path.parent == directory.checkpoints
    written = not args.checkpoint.export_final or directory.export(args.run.steps).is_dir()
    return in_place and resumed.state.step == args.run.steps and written


def _discard_refused(directory: RunDirectory, _kind: object, error: BaseException | None, _trace: object) -> None:
    """Worker processes find some mistakes only when they read the weights or talk to a tracker."""
    if isinstance(error, UserError):
        directory.discard()


async def _run(args: Args, prepared: Prepared, machine: Machine, session: Session, outputs: Outputs) -> None:
    workers = _make_workers(args, prepared, machine, session, outputs)
    lifelines = [workers.trainers.lifelines(), *(engine.lifeline() for engine in workers.engines)]
    await supervised(_train(args, prepared, workers, outputs), lifelines)


async def _train(args: Args, prepared: Prepared, workers: Workers, outputs: Outputs) -> None:
    clock = StepClock()
    rewarders = _Rewarders(args, prepared, logs=outputs.directory.logs)
    draws = _Draws(args, prepared, workers, rewarders)
    try:
        outputs.display.note("starting trainer and engines")
        processes = await _start(args, workers, rewarders)
        weights = WeightPusher(
            workers.trainers,
            workers.engines,
            config=args.weight_sync,
            model=prepared.spec,
            context_length=context_length(args, prepared.spec),
        )
        await weights.connect()
        resumed = outputs.resumed
        reference = await _reference(args, workers.trainers, None if resumed is None else resumed.state)
        outputs.directory.started(args, step=outputs.step)
        if outputs.directory.attempt > FIRST_ATTEMPT:
            outputs.sinks.rewind(-1 if resumed is None else outputs.step)
        parts = Parts(
            cursor=prepared.cursor,
            schedule=_schedule(args, prepared),
            rollouts=draws.training(clock),
            engines=_Sleep(workers),
            policy=workers.trainers,
            weights=weights,
            evaluator=draws.evaluator(),
            saver=Saver(
                args.checkpoint,
                outputs.directory.checkpoints,
                workers.trainers,
                num_bytes=saved_bytes(args, prepared.spec),
                note=outputs.display.note,
                newest=outputs.step if resumed else None,
            ),
            recorder=Recorder(
                args,
                outputs.directory,
                sink=outputs.sinks,
                display=outputs.display,
                decode=prepared.tokenizer.decode,
                processes=processes,
            ),
            clock=clock,
            model=prepared.spec,
            reference=reference,
            resumed=None if resumed is None else resumed.state,
        )
        await SyncTrainer(args, parts).run()
        if args.checkpoint.export_final:
            with outputs.directory.exporting(args.run.steps) as path:
                await workers.trainers.export(str(path))
            outputs.display.note(f"final weights: {path}")
    finally:
        await rewarders.close()


async def _reference(args: Args, trainers: TrainerGroup, saved: RunState | None) -> str | None:
    """Digest of the reference's weights. Raises UserError where a resumed run would measure its KL from others."""
    kl = args.algorithm.kl
    if not isinstance(kl, ReferenceKL):
        return None
    found = await trainers.reference_digest()
    if saved is not None and saved.reference not in (None, found) and not _another_reference(args, saved):
        rule = "the reference model's weights aren't those that the saved run measured its KL from"
        hint = f"give the path of those as algorithm.kl.reference; {RESUME_FLAG} doesn't move the reference"
        path = kl.reference or args.actor.model.path
        raise UserError.single("algorithm.kl.reference", rule, value=path, hint=hint)
    return found


def _another_reference(args: Args, saved: RunState) -> bool:
    """The config asks for one, of which the user was told."""
    before, now = flat(saved.config), flat(resolved(args))
    keys = ("algorithm.kl.reference", "actor.model.dtype")
    return any(before.get(key) != now.get(key) for key in keys)


def _make_workers(args: Args, prepared: Prepared, machine: Machine, session: Session, outputs: Outputs) -> Workers:
    from rltrain.cluster.group import EngineHandle, TrainerGroup

    logs = outputs.directory.logs
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
    train_setup = _train_setup(args, machine, plan, outputs.directory.path / "profile", start=_saved_start(outputs))
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


async def _start(args: Args, workers: Workers, rewarders: _Rewarders) -> dict[str, int]:
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


def _schedule(args: Args, prepared: Prepared) -> Schedule:
    actor = args.actor
    return Schedule(
        prompts_per_update=args.algorithm.prompts_per_update or args.rollout.prompts_per_step,
        ranks=actor.parallel.data,
        tokens_per_micro_batch=actor.tokens_per_micro_batch,
        multiple_of=actor.parallel.micro_batch_multiple,
        balance=actor.micro_batches,
        row_cost=6.0 * prepared.spec.hidden_size,
    )


def _saved_start(outputs: Outputs) -> SavedStart | None:
    if outputs.resumed is None:
        return None
    saved, state = outputs.resumed.saved, outputs.resumed.state
    return SavedStart(directory=saved.path / ACTOR, key=RESUME_FLAG, moments=state.moments, num_updates=state.updates)


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


class _Rewarders:
    """Training's rewarder, and one for each evaluation set that has rewards of its own."""

    def __init__(self, args: Args, prepared: Prepared, *, logs: Path) -> None:
        self._logs = logs
        self._search_path = args.config_path.parent
        self._decode = prepared.tokenizer.decode
        self.training = self._make(args.reward)
        sets = args.eval.sets if args.eval is not None else {}
        own = {name: config.reward for name, config in sets.items()}
        self.evaluation: Mapping[str, Rewarder] = {
            name: self.training if reward is None else self._make(reward) for name, reward in own.items()
        }

    def _make(self, config: RewardConfig) -> Rewarder:
        return Rewarder(config, decode=self._decode, search_path=self._search_path, log_directory=self._logs)

    def _all(self) -> set[Rewarder]:
        return {self.training, *self.evaluation.values()}

    async def start(self) -> None:
        await together(*(rewarder.start() for rewarder in self._all()))

    async def close(self) -> None:
        await together(*(rewarder.close() for rewarder in self._all()))


@dataclass(frozen=True, slots=True)
class _Draws:
    """Makes the collectors of training and of evaluation sets, which differ only in what they draw."""

    args: Args
    prepared: Prepared
    workers: Workers
    rewarders: _Rewarders

    def training(self, clock: StepClock) -> RolloutCollector:
        args = self.args
        draw = self._draw(
            TRAINING_STREAM,
            args.rollout,
            samples_per_prompt=args.rollout.samples_per_prompt,
            max_failed_share=args.reward.max_failed_share,
        )
        return RolloutCollector(self.workers.engines, self.rewarders.training, draw, clock=clock)

    def evaluator(self) -> Evaluator | None:
        config = self.args.eval
        if config is None:
            return None
        return Evaluator([self._prepared_set(name, eval_set) for name, eval_set in config.sets.items()])

    def _prepared_set(self, name: str, config: EvalSet) -> PreparedSet:
        reward = config.reward or self.args.reward
        draw = self._draw(
            name,
            config.sampling,
            samples_per_prompt=config.samples_per_prompt,
            max_failed_share=reward.max_failed_share,
        )
        collector = RolloutCollector(self.workers.engines, self.rewarders.evaluation[name], draw)
        return PreparedSet(name=name, config=config, prompts=self.prepared.eval_prompts[name], rollouts=collector)

    def _draw(self, stream: str, sampling: SamplingConfig, *, samples_per_prompt: int, max_failed_share: float) -> Draw:
        return Draw(
            stream=stream,
            sampling=sampling,
            samples_per_prompt=samples_per_prompt,
            eos_ids=self.prepared.spec.eos_ids,
            vocab_limit=self.prepared.tokenizer.vocab_size,
            run_seed=self.args.run.seed,
            deterministic=self.args.run.deterministic,
            timeout_s=self.args.rollout.timeout_s,
            max_failed_share=max_failed_share,
        )
