"""The directory that holds everything a run leaves behind, and the lock that says a process is at work in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from rltrain.config.dump import dump_yaml
from rltrain.config.errors import UserError
from rltrain.config.namespace import Args
from rltrain.config.redact import scrubbed, secret_values
from rltrain.telemetry.atomic import write_text
from rltrain.telemetry.environment import environment_facts

MARKER = ".rltrain-run"
"""File that makes a directory one of ours; its lock is held while a process runs there."""
OVERWRITE_FLAG = "--overwrite"
ATTEMPT = "1"
"""Name of the logs of a run's first process."""


@dataclass(frozen=True, slots=True, eq=False)
class RunDirectory:
    """Paths below `runs/<name>/`; all absolute."""

    path: Path
    _lock: IO[str]
    replaced: Path | None = None
    """Where the earlier run of this name is kept until the new one has started."""

    @classmethod
    def create(cls, args: Args, *, overwrite: bool) -> RunDirectory:
        """Makes and locks the directory and writes `config.yaml` and `environment.json`.

        Raises UserError, with nothing touched, where the directory exists; `overwrite` puts it aside, if it is an
        earlier run's and no process is at work in it. `forget_replaced` then removes it, `discard` brings it back.
        """
        path = args.run.directory.absolute() / (args.run.name or default_name(args.config_path, now=datetime.now(UTC)))
        try:
            with ExitStack() as undo:
                replaced = _put_aside(path, overwrite=overwrite)
                undo.callback(_put_back, replaced, path)
                directory = cls(path, _made(path), replaced)
                undo.callback(shutil.rmtree, path, ignore_errors=True)
                undo.callback(directory.release)
                directory._fill(args)
                undo.pop_all()
        except OSError as error:
            raise UserError.single("run.directory", f"can't be made: {error}", value=path) from error
        return directory

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def logs(self) -> Path:
        """Made already: `<process>.log` files go here."""
        return self.path / "logs" / ATTEMPT

    def rollout(self, step: int) -> Path:
        """File of a step's samples; its directory is made already."""
        return self.path / "rollouts" / f"step_{step}.parquet"

    def export(self, step: int) -> Path:
        """Directory for the weights after a step, as Hugging Face's; its parent is made already."""
        return self.path / "hf" / f"step_{step}"

    @property
    def checkpoints(self) -> Path:
        """Directory of the saved steps, if there are any."""
        return self.path / "checkpoints"

    def discard(self) -> None:
        """Removes the directory and brings the earlier one back: the run was refused before it did anything."""
        shutil.rmtree(self.path, ignore_errors=True)
        _put_back(self.replaced, self.path)

    def forget_replaced(self) -> None:
        """Removes the earlier run, if `overwrite` put one aside: the new one has started."""
        if self.replaced is not None:
            shutil.rmtree(self.replaced)

    def release(self) -> None:
        """Gives up the lock. Ending the process does the same."""
        self._lock.close()

    def _fill(self, args: Args) -> None:
        for directory in (self.logs, self.rollout(0).parent, self.export(0).parent):
            directory.mkdir(parents=True, exist_ok=True)
        write_text(self.config, scrubbed(dump_yaml(args), secrets=secret_values(os.environ)))
        write_text(self.environment, json.dumps(environment_facts(), indent=2, ensure_ascii=False) + "\n")


def default_name(config_path: Path, *, now: datetime) -> str:
    """The config's stem, other than letters, digits, `.`, `_` and `-` as `-`, and the UTC time to the second."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", config_path.stem).lstrip("-._") or "run"
    return f"{stem}-{now:%Y%m%d-%H%M%S}"


def check_name(args: Args, *, overwrite: bool) -> None:
    """Raises UserError where `create` would find the run's name taken; touches nothing."""
    if args.run.name is None:
        return  # the time makes it a new one
    path = args.run.directory.absolute() / args.run.name
    if not _is_there(path):
        return
    if not overwrite:
        raise _exists(path)
    with _removable(path):
        pass


def _put_aside(path: Path, *, overwrite: bool) -> Path | None:
    """Frees the name, under the earlier run's lock, so that of two processes only one does; where that run is now."""
    if not _is_there(path):
        return None
    if not overwrite:
        raise _exists(path)
    with _removable(path):
        return path.rename(path.with_name(f".{path.name}.{os.getpid()}.replaced"))


def _put_back(replaced: Path | None, path: Path) -> None:
    if replaced is not None:
        replaced.rename(path)


def _made(path: Path) -> IO[str]:
    """A fresh, locked directory at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        raise _exists(path) from None  # another run was faster
    return _locked(path)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _exists(path: Path) -> UserError:
    hint = f"give another run.name, or {OVERWRITE_FLAG} to remove that run's directory first"
    return UserError.single("run.name", f"the directory {path} exists", value=path.name, hint=hint)


def _removable(path: Path) -> IO[str]:
    """The lock of an earlier run that may be removed. Raises UserError."""
    if path.is_symlink() or not (path / MARKER).is_file():
        rule = f"{path} was not made by rltrain (it has no {MARKER}), so {OVERWRITE_FLAG} leaves it alone"
        raise UserError.single("run.name", rule, value=path.name, hint="remove it by hand or give another run.name")
    return _locked(path)


def _locked(path: Path) -> IO[str]:
    marker = (path / MARKER).open("a", encoding="utf-8")
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        marker.close()
        rule = f"another process is running in {path}"
        raise UserError.single("run.name", rule, value=path.name, hint="end it or give another run.name") from None
    except OSError:
        pass  # a file system without locks: two runs still can't make the same directory
    return marker
