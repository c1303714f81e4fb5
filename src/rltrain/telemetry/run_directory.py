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
RESUME_FLAG = "--resume"
FIRST_ATTEMPT = 1
"""Number of a run's first process, which its logs are named by."""
ROLLOUT = re.compile(r"step_([0-9]+)\.parquet")


@dataclass(frozen=True, slots=True, eq=False)
class RunDirectory:
    """Paths below `runs/<name>/`; all absolute."""

    path: Path
    _lock: IO[str]
    replaced: Path | None = None
    """Where the earlier run of this name is kept until the new one has started."""
    attempt: int = FIRST_ATTEMPT

    @classmethod
    def create(cls, args: Args, *, overwrite: bool) -> RunDirectory:
        """Makes and locks the directory and writes `config.yaml` and `environment.json`.

        Raises UserError, with nothing touched, where the directory exists; `overwrite` puts it aside, if it is an
        earlier run's and no process is at work in it. `started` then removes it, `discard` brings it back.
        """
        path = args.run.directory.absolute() / (args.run.name or default_name(args.config_path, now=datetime.now(UTC)))
        try:
            with ExitStack() as undo:
                replaced = _put_aside(path, overwrite=overwrite)
                undo.callback(_put_back, replaced, path)
                directory = cls(path, _made(path), replaced)
                undo.callback(shutil.rmtree, path, ignore_errors=True)
                undo.callback(directory.release)
                directory._make_folders()
                directory._describe(args)
                undo.pop_all()
        except OSError as error:
            raise UserError.single("run.directory", f"can't be made: {error}", value=path) from error
        return directory

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory:
        """Locks an earlier run's directory to go on in it; until `started`, all that it gets is a folder for logs.

        Raises UserError where it isn't a run's or another process is at work in it.
        """
        if not is_run(path):
            raise UserError.single(RESUME_FLAG, f"was not made by rltrain (it has no {MARKER})", value=path)
        with ExitStack() as undo:
            lock = undo.enter_context(_locked(path))
            attempts = [int(found.name) for found in (path / "logs").glob("*") if found.name.isdigit()]
            directory = cls(path, lock, attempt=max(attempts, default=0) + 1)
            try:
                directory._make_folders()
            except OSError as error:
                raise UserError.single(RESUME_FLAG, f"can't be written to: {error}", value=path) from error
            undo.pop_all()
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
        return self.path / "logs" / str(self.attempt)

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

    @property
    def wandb_id(self) -> Path:
        """File with the name of this run at Weights & Biases, if it is there."""
        return self.path / "wandb-id.txt"

    def discard(self) -> None:
        """Removes what this process made and brings the earlier run back: it was refused before it did anything."""
        if self.attempt > FIRST_ATTEMPT:
            shutil.rmtree(self.logs, ignore_errors=True)
            return
        shutil.rmtree(self.path, ignore_errors=True)
        _put_back(self.replaced, self.path)

    def started(self, args: Args, *, step: int) -> None:
        """The run goes on from after `step`: an earlier one that was put aside, and samples of later steps, go."""
        if self.replaced is not None:
            shutil.rmtree(self.replaced)
        if self.attempt > FIRST_ATTEMPT:
            self._describe(args)
            for path in self.rollout(0).parent.iterdir():
                if (match := ROLLOUT.fullmatch(path.name)) and int(match[1]) > step:
                    path.unlink()

    def release(self) -> None:
        """Gives up the lock. Ending the process does the same."""
        self._lock.close()

    def _make_folders(self) -> None:
        for directory in (self.logs, self.rollout(0).parent, self.export(0).parent):
            directory.mkdir(parents=True, exist_ok=True)

    def _describe(self, args: Args) -> None:
        write_text(self.config, scrubbed(dump_yaml(args), secrets=secret_values(os.environ)))
        write_text(self.environment, json.dumps(environment_facts(), indent=2, ensure_ascii=False) + "\n")


def default_name(config_path: Path, *, now: datetime) -> str:
    """The config's stem, other than letters, digits, `.`, `_` and `-` as `-`, and the UTC time to the second."""
    return f"{_stem(config_path)}-{now:%Y%m%d-%H%M%S}"


def default_named(args: Args) -> list[Path]:
    """Directories of this config's runs without a name of their own, newest first."""
    pattern = re.compile(re.escape(_stem(args.config_path)) + r"-[0-9]{8}-[0-9]{6}")
    parent = args.run.directory.absolute()
    found = parent.iterdir() if parent.is_dir() else ()
    return sorted((path for path in found if pattern.fullmatch(path.name) and is_run(path)), reverse=True)


def is_run(path: Path) -> bool:
    return (path / MARKER).is_file()


def _stem(config_path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", config_path.stem).lstrip("-._") or "run"


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
    hint = f"{RESUME_FLAG} goes on with it, another run.name leaves it, {OVERWRITE_FLAG} removes it first"
    return UserError.single("run.name", f"the directory {path} exists", value=path.name, hint=hint)


def _removable(path: Path) -> IO[str]:
    """The lock of an earlier run that may be removed. Raises UserError."""
    if path.is_symlink() or not is_run(path):
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
