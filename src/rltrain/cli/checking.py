"""All checks of a config that read no data: keys and values, rules between them, files, the model's facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rltrain.config import rules
from rltrain.config.algorithm import ReferenceKL
from rltrain.config.errors import Problem, UserError
from rltrain.config.files import check_files
from rltrain.config.load import Loaded, load
from rltrain.config.machine import Machine, this_machine, visible_gpus
from rltrain.config.namespace import Args
from rltrain.config.telemetry import WandbConfig
from rltrain.telemetry.run_directory import OVERWRITE_FLAG, RESUME_FLAG, check_name
from rltrain.telemetry.wandb_check import check_wandb
from rltrain.trainer.gpu_memory import memory_problems
from rltrain.trainer.host_needs import disk_problems, host_memory_problems
from rltrain.trainer.resume import Resumed, choose, find_origin
from rltrain.types.model_spec import ModelSpec

SAME = (
    "family",
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
"""Facts in which a reference model must be as the actor."""


@dataclass(frozen=True, slots=True)
class Checked:
    loaded: Loaded
    spec: ModelSpec
    machine: Machine

    @property
    def args(self) -> Args:
        return self.loaded.args

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Problems found later, with the places of their keys."""
        return self.loaded.located(problems)


def check(path: Path, overrides: Sequence[str]) -> Checked:
    """Raises UserError with all problems that a config has, each with its place."""
    loaded = load(path, overrides)
    config = loaded.args.config()
    machine = this_machine(config.cluster)
    problems: list[Problem] = []
    spec = _spec(config.actor.model.path, "actor.model.path", problems)
    kl = config.algorithm.kl
    if isinstance(kl, ReferenceKL) and kl.reference is not None:
        reference = _spec(kl.reference, "algorithm.kl.reference", problems)
        problems += _differences(spec, reference)
    problems += check_files(config)
    problems += _tracker(config.telemetry.wandb)
    problems += rules.check(config, rules.Facts(machine=machine, visible_gpus=visible_gpus(), model=spec))
    if spec is not None and not problems:
        problems += memory_problems(loaded.args, spec, machine)
        problems += [*host_memory_problems(loaded.args, spec, machine), *disk_problems(loaded.args, spec)]
    if problems or spec is None:
        raise UserError(loaded.located(problems))
    return Checked(loaded, spec, machine)


def check_flags(*, overwrite: bool, resume: str | None) -> None:
    """Raises UserError for flags that contradict one another."""
    if overwrite and resume is not None:
        rule = f"{RESUME_FLAG} goes on with a run and {OVERWRITE_FLAG} removes it"
        raise UserError.single(OVERWRITE_FLAG, rule, hint="give one of them")


def check_place(checked: Checked, *, overwrite: bool, resume: str | None) -> Resumed | None:
    """What a run would go on from. Raises UserError where it couldn't, or couldn't write; touches nothing."""
    origin = None if resume is None else find_origin(checked.args, resume)
    if origin is None or origin.run is None:
        check_name(checked.args, overwrite=overwrite)
    return None if origin is None else choose(origin, checked.args, checked.spec)


def _tracker(config: WandbConfig | None) -> Sequence[Problem]:
    try:
        check_wandb(config)
    except UserError as error:
        return error.problems
    return ()


def _spec(path: Path, key: str, problems: list[Problem]) -> ModelSpec | None:
    try:
        return ModelSpec.read(path)
    except UserError as error:
        problems += [replace(problem, key=key) for problem in error.problems]
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        problems.append(Problem(key=key, rule=f"config.json holds what no model has: {error}", value=str(path)))
    return None


def _differences(spec: ModelSpec | None, reference: ModelSpec | None) -> list[Problem]:
    if spec is None or reference is None:
        return []
    return [
        Problem(
            key="algorithm.kl.reference",
            rule=f"its {name} is {getattr(reference, name)}, the actor's {getattr(spec, name)}",
            value=str(reference.path),
        )
        for name in SAME
        if getattr(reference, name) != getattr(spec, name)
    ]
