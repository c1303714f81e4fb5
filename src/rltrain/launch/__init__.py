"""The composition root, which alone knows every class: from a config to the objects of a run, and to its end."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rltrain.backends.megatron.setup import SavedStart
from rltrain.checkpoint.state import RunState
from rltrain.checkpoint.steps import ACTOR
from rltrain.cluster.session import Session, ray_session
from rltrain.cluster.supervision import supervised
from rltrain.concurrency import together
from rltrain.config.algorithm import ReferenceKL
from rltrain.config.dump import flat, resolved
from rltrain.config.errors import UserError
from rltrain.config.machine import Machine, this_machine
from rltrain.config.namespace import Args
from rltrain.data.plan import Schedule
from rltrain.launch.draws import Draws, Rewarders
from rltrain.launch.workers import Workers, make_workers, start_all
from rltrain.telemetry.display import Display, make_display
from rltrain.telemetry.recorder import Recorder
from rltrain.telemetry.run_directory import FIRST_ATTEMPT, RESUME_FLAG, RunDirectory
from rltrain.telemetry.sinks import Sinks, open_sinks
from rltrain.telemetry.spans import StepClock
from rltrain.trainer.estimate import saved_bytes
from rltrain.trainer.preparation import Prepared, context_length, prepare
from rltrain.trainer.resume import Origin, Resumed, choose, find_origin
from rltrain.trainer.saving import Saver
from rltrain.trainer.stopping import Stopping
from rltrain.trainer.sync import Parts, SyncTrainer
from rltrain.weight_sync.pusher import WeightPusher

if TYPE_CHECKING:  # importing it loads Ray, which reads its environment at that moment
    from rltrain.cluster.group import TrainerGroup


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
    workers = make_workers(args, prepared, machine, session, outputs.directory, saved=_saved_start(outputs))
    lifelines = [workers.trainers.lifelines(), *(engine.lifeline() for engine in workers.engines)]
    stopping = Stopping(outputs.display.note)
    limit = args.run.max_wall_time
    await supervised(
        _train(args, prepared, workers, outputs, stopping),
        lifelines,
        ask=stopping.ask,
        grace_s=args.checkpoint.grace_s,
        limit_s=None if limit is None else limit.total_seconds(),
    )


async def _train(args: Args, prepared: Prepared, workers: Workers, outputs: Outputs, stopping: Stopping) -> None:
    clock = StepClock()
    rewarders = Rewarders(args, prepared, logs=outputs.directory.logs)
    draws = Draws(args, prepared, workers.engines, rewarders)
    try:
        outputs.display.note("starting trainer and engines")
        processes = await start_all(args, workers, rewarders)
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
                model=prepared.spec.path,
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
            stopping=stopping,
            clock=clock,
            model=prepared.spec,
            reference=reference,
            resumed=None if resumed is None else resumed.state,
        )
        finished = await SyncTrainer(args, parts).run()
        if finished and args.checkpoint.export_final:
            path = outputs.directory.export(args.run.steps)
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
