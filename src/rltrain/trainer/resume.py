"""`--resume`: which saved step a run goes on from, and where it writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rltrain.checkpoint.manifest import MANIFEST, Damaged
from rltrain.checkpoint.state import RunState
from rltrain.checkpoint.steps import NAME, SavedStep, SavedSteps
from rltrain.config.dump import resolved
from rltrain.config.errors import Problem, UserError
from rltrain.config.namespace import Args
from rltrain.telemetry.run_directory import RESUME_FLAG, default_named, is_run
from rltrain.trainer.changes import changes, newly_trained
from rltrain.types.model_spec import ModelSpec

AUTO = "auto"
CHECKPOINTS = "checkpoints"
WAYS = f"{AUTO}, a step's number, a run's directory or a saved step's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the step is looked for."""

    checkpoints: Path
    wanted: int | None
    """The newest whole one where None."""
    run: Path | None
    """The run directory that is gone on in; None for a new one, which branches off."""
    may_be_none: bool = False
    """Without any saved step the run starts from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    saved: SavedStep
    state: RunState
    notes: tuple[str, ...]
    """For the user: what was passed over, and what the config changes."""


def find_origin(args: Args, text: str) -> Origin | None:
    """What `--resume TEXT` means; None for `auto` where there is nothing yet. Looks no further than directories.

    Raises UserError.
    """
    if text == AUTO or text.isdecimal():
        wanted = None if text == AUTO else int(text)
        run = _own_run(args)
        if run is None and wanted is None:
            return None
        if run is None:
            rule = f"there is no run in {args.run.directory.absolute()} to go on with"
            raise UserError.single(RESUME_FLAG, rule, value=text, hint="name it with run.name, or give its path")
        return Origin(checkpoints=run / CHECKPOINTS, wanted=wanted, run=run, may_be_none=wanted is None)
    path = Path(text).absolute()
    if is_run(path):
        return Origin(checkpoints=path / CHECKPOINTS, wanted=None, run=_gone_on_in(args, path))
    if (match := NAME.fullmatch(path.name)) and (path / MANIFEST).is_file():
        run = path.parent.parent if path.parent.name == CHECKPOINTS and is_run(path.parent.parent) else None
        return Origin(checkpoints=path.parent, wanted=int(match[1]), run=run and _gone_on_in(args, run))
    rule = "is neither a run's directory nor a saved step" if path.exists() else "isn't there"
    raise UserError.single(RESUME_FLAG, rule, value=text, hint=WAYS)


def choose(origin: Origin, args: Args, spec: ModelSpec) -> Resumed | None:
    """The step to go on from, its files read through; None where there is none and needn't be.

    Raises UserError where it can't be had, or the config doesn't go with it.
    """
    steps = SavedSteps.reading(origin.checkpoints)
    passed_over = steps.damaged()
    for saved in _candidates(origin, steps):
        try:
            _check_contents(saved)
            state = RunState.read(saved.path)
        except Damaged as error:
            passed_over[saved.step] = str(error)
            continue
        _check_later(origin, steps, saved)
        notes = [f"saved step {step} is damaged and passed over: {why}" for step, why in _later(passed_over, saved)]
        return Resumed(saved=saved, state=state, notes=(*notes, *_check_config(args, spec, state)))
    if origin.may_be_none and not passed_over:
        return None
    raise UserError([_none_found(origin, steps, passed_over)])


def _own_run(args: Args) -> Path | None:
    if args.run.name is None:
        runs = default_named(args)
        return next((run for run in runs if any((run / CHECKPOINTS).glob("step_*"))), None)
    path = args.run.directory.absolute() / args.run.name
    return path if path.exists() or path.is_symlink() else None


def _gone_on_in(args: Args, run: Path) -> Path | None:
    """The run itself, unless the config names another one."""
    named = args.run.name is None or args.run.directory.absolute() / args.run.name == run
    return run if named else None


def _candidates(origin: Origin, steps: SavedSteps) -> Iterator[SavedStep]:
    return (saved for saved in steps.whole() if origin.wanted in (None, saved.step))


def _check_contents(saved: SavedStep) -> None:
    """Raises Damaged. Hashing leaves Python alone, so files go side by side."""
    with ThreadPoolExecutor() as threads:
        deque(threads.map(saved.check, saved.manifest.files), maxlen=0)


def _check_later(origin: Origin, steps: SavedSteps, saved: SavedStep) -> None:
    """Going on from an older step must not overwrite what came after it."""
    later = [step.step for step in steps.whole() if step.step > saved.step]
    if origin.run is None or origin.wanted is None or not later:
        return
    rule = f"{origin.run} has the later steps {', '.join(map(str, sorted(later)))}, which going on would overwrite"
    hint = f"give another run.name and {RESUME_FLAG} {saved.path} to branch off, or remove the later steps"
    raise UserError.single(RESUME_FLAG, rule, value=saved.step, hint=hint)


def _later(passed_over: dict[int, str], saved: SavedStep) -> list[tuple[int, str]]:
    return sorted((step, why) for step, why in passed_over.items() if step > saved.step)


def _none_found(origin: Origin, steps: SavedSteps, passed_over: dict[int, str]) -> Problem:
    damaged = [f"step {step} is damaged: {why}" for step, why in sorted(passed_over.items())]
    there = [str(saved.step) for saved in steps.whole() if saved.step not in passed_over]
    if origin.wanted is None:
        return Problem(
            key=RESUME_FLAG,
            rule="; ".join(["no whole saved step is there", *damaged]),
            value=str(origin.checkpoints),
            hint="checkpoint.every saves steps" if not damaged else "restore it, or start another run",
        )
    wrong = passed_over.get(origin.wanted)
    rule = f"isn't saved in {origin.checkpoints}" if wrong is None else f"is damaged: {wrong}"
    hint = f"there are {', '.join(reversed(there))}" if there else "there is no whole one"
    return Problem(key=RESUME_FLAG, rule=f"step {origin.wanted} {rule}", hint=hint)


def _check_config(args: Args, spec: ModelSpec, state: RunState) -> list[str]:
    """Notes on what has changed. Raises UserError for what can't."""
    problems = [*_model_problems(spec, state)]
    if args.run.steps < state.step:
        rule = f"the saved step is {state.step} already"
        problems.append(Problem(key="run.steps", rule=rule, value=str(args.run.steps), hint=f"at least {state.step}"))
    found = changes(state.config, resolved(args))
    if state.moments:
        for change in newly_trained(found):
            rule = f"was {change.before} when the optimizer's moments were saved, which go with the trained tensors"
            hint = "leave it, or save with checkpoint.optimizer: false"
            problems.append(Problem(key=change.key, rule=rule, value=change.now, hint=hint))
    if problems:
        raise UserError(problems)
    return [f"changed since the saved step: {change}" for change in found]


def _model_problems(spec: ModelSpec, state: RunState) -> Iterator[Problem]:
    here = spec.facts()
    for name in here:
        if here[name] != state.model.get(name):
            rule = f"its {name} is {here[name]}, the saved model's {state.model.get(name)}"
            yield Problem(key="actor.model.path", rule=rule, value=str(spec.path))
