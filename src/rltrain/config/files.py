"""Files that a config names must be there before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rltrain.config.algorithm import ReferenceKL
from rltrain.config.data import PromptFormat
from rltrain.config.errors import Problem
from rltrain.config.readable import unreadable
from rltrain.config.tree import Config

SUFFIXES = (".jsonl", ".parquet")


def check_files(config: Config) -> list[Problem]:
    """A problem for each path that can't be used. A model's `config.json` and tokenizer have readers of their own."""
    problems = [*_sources(config.data, "data"), *_weights(config), *_directory(config)]
    for name, one in (config.eval.sets if config.eval else {}).items():
        problems += _sources(one, f"eval.sets.{name}")
    return problems


def _sources(config: PromptFormat, key: str) -> Iterator[Problem]:
    for index, source in enumerate(config.sources):
        place = f"{key}.sources[{index}].path"
        if source.path.suffix not in SUFFIXES:
            yield Problem(key=place, rule=f"must end in {' or '.join(SUFFIXES)}", value=str(source.path))
        elif reason := unreadable(source.path):
            yield Problem(key=place, rule=reason, value=str(source.path))


def _weights(config: Config) -> Iterator[Problem]:
    model, kl = config.actor.model, config.algorithm.kl
    paths = {"actor.model.path": model.path} if model.init == "pretrained" else {}
    if isinstance(kl, ReferenceKL) and kl.reference is not None:
        paths["algorithm.kl.reference"] = kl.reference
    for key, path in paths.items():
        if unreadable(path / "config.json"):
            continue  # its reader says so
        weights = sorted(path.glob("*.safetensors"))
        if not weights:
            hint = "add the weights, or set actor.model.init: random" if key == "actor.model.path" else None
            yield Problem(key=key, rule="has no *.safetensors", value=str(path), hint=hint)
        for file in weights:
            if reason := unreadable(file):
                yield Problem(key=key, rule=reason, value=str(file))


def existing_part(path: Path) -> Path:
    """The path as far as there is something. Raises OSError."""
    return next(one for one in (path, *path.parents) if one.exists() or one.is_symlink())


def _directory(config: Config) -> Iterator[Problem]:
    """Tries it: permissions alone don't tell of read-only and special file systems."""
    path = config.run.directory
    try:
        there = existing_part(path)
        if not there.is_dir():
            rule = "is a link to nothing" if there.is_symlink() else "is no directory"
            rule = rule if there == path else f"{there} {rule}"
            yield Problem(key="run.directory", rule=rule, value=str(path))
            return
    except OSError as error:
        yield Problem(key="run.directory", rule=f"can't be used: {error.strerror or error}", value=str(path))
        return
    try:
        with TemporaryDirectory(prefix=".rltrain-", dir=there):
            pass
    except OSError as error:
        rule = f"nothing can be made in {there} ({error.strerror or error})"
        yield Problem(key="run.directory", rule=rule, value=str(path))
