"""Files that a config names must be there before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rltrain.config.algorithm import ReferenceKL
from rltrain.config.data import PromptFormat
from rltrain.config.errors import Problem
from rltrain.config.tree import Config

SUFFIXES = (".jsonl", ".parquet")


def check_files(config: Config) -> list[Problem]:
    """A problem for each data file, set of weights or package that is missing. `config.json` has a reader."""
    problems = [*_sources(config.data, "data"), *_weights(config), *_packages(config), *_directory(config)]
    for name, one in (config.eval.sets if config.eval else {}).items():
        problems += _sources(one, f"eval.sets.{name}")
    return problems


def _sources(config: PromptFormat, key: str) -> Iterator[Problem]:
    for index, source in enumerate(config.sources):
        place = f"{key}.sources[{index}].path"
        if source.path.suffix not in SUFFIXES:
            yield Problem(key=place, rule=f"must end in {' or '.join(SUFFIXES)}", value=str(source.path))
        elif not source.path.is_file():
            rule = "is a directory" if source.path.is_dir() else "there is no such file"
            yield Problem(key=place, rule=rule, value=str(source.path))


def _weights(config: Config) -> Iterator[Problem]:
    model, kl = config.actor.model, config.algorithm.kl
    paths = {"actor.model.path": model.path} if model.init == "pretrained" else {}
    if isinstance(kl, ReferenceKL) and kl.reference is not None:
        paths["algorithm.kl.reference"] = kl.reference
    for key, path in paths.items():
        if (path / "config.json").is_file() and not any(path.glob("*.safetensors")):
            hint = "add the weights, or set actor.model.init: random" if key == "actor.model.path" else None
            yield Problem(key=key, rule="has no *.safetensors", value=str(path), hint=hint)


def _packages(config: Config) -> Iterator[Problem]:
    if config.telemetry.wandb is not None and find_spec("wandb") is None:
        hint = "pip install 'rltrain[wandb]', or remove it"
        yield Problem(key="telemetry.wandb", rule="needs the package wandb, which is not installed", hint=hint)


def _directory(config: Config) -> Iterator[Problem]:
    if config.run.directory.exists() and not config.run.directory.is_dir():
        yield Problem(key="run.directory", rule="is a file", value=str(config.run.directory))
