"""Files and directories that are either whole or not there."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path beside `path` to write to; it takes `path`'s place when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def new_directory(path: Path, *, replace: bool = False) -> Generator[Path]:
    """An empty directory beside `path` to write to; when the block ends without an error it becomes `path`, whole.

    What another process left half written is removed first. Raises FileExistsError where `path` holds something that
    isn't to be replaced, BlockingIOError where another process is writing it, OSError.
    """
    aside = path.with_name(f".{path.name}.replaced")
    if aside.exists() and not path.exists():  # a process ended between the two renames below
        aside.rename(path)
    if path.exists() and not replace and any(path.iterdir()):
        raise FileExistsError(f"{path} exists already and isn't empty")
    partial = path.with_name(f".{path.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(partial):
        try:
            _empty(partial)
            if aside.exists():
                shutil.rmtree(aside)
            yield partial
            sync_tree(partial)
            if path.exists():
                path.rename(aside)
            partial.rename(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    sync(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _empty(directory: Path) -> None:
    for left in directory.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


@contextmanager
def _locked(directory: Path) -> Generator[None]:
    """Gone with the process, however that ends. Raises BlockingIOError where another process has it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """All that is written in it, through to the disk."""
    for path in (directory, *directory.rglob("*")):
        sync(path)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
