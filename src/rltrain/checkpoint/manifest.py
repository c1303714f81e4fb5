"""`manifest.json`, the last file that a saved step gets: what the others are, so that a damaged one is found."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
VERSION = 1


class Damaged(Exception):
    """A saved step that can't be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    step: int
    files: Mapping[str, FileFacts]
    """By path below the step's directory."""
    metrics: Mapping[str, float]
    """Of the step, for keeping the best."""

    def write(self, directory: Path) -> None:
        """Through to the disk."""
        files = {name: {"size": facts.size, "sha256": facts.sha256} for name, facts in self.files.items()}
        tree = {"version": VERSION, "step": self.step, "metrics": dict(self.metrics), "files": files}
        with (directory / MANIFEST).open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(tree, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Raises Damaged where there is none, or one that can't be read."""
        try:
            tree: Any = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            if tree["version"] != VERSION:
                raise Damaged(f"{MANIFEST} has version {tree['version']}, this rltrain reads {VERSION}")
            files = {
                str(name): FileFacts(int(facts["size"]), str(facts["sha256"])) for name, facts in tree["files"].items()
            }
            metrics = {str(name): float(value) for name, value in tree["metrics"].items()}
            return cls(step=int(tree["step"]), files=files, metrics=metrics)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{MANIFEST} can't be read: {error}") from error

    def check(self, directory: Path, *, contents: bool) -> None:
        """Raises Damaged for the first file that is missing or of another size, or with `contents`, of other bytes."""
        for name in self.files:
            self.check_file(directory, name, contents=contents)

    def check_file(self, directory: Path, name: str, *, contents: bool) -> None:
        """As `check`, for one of the files."""
        path, facts = directory / name, self.files[name]
        try:
            found = path.stat().st_size
            if found != facts.size:
                raise Damaged(f"{name} has {found} bytes, {facts.size} were written")
            if contents and facts_of(path) != facts:
                raise Damaged(f"{name} has other bytes than were written")
        except OSError as error:
            raise Damaged(f"{name} can't be read: {error.strerror}") from error


def facts_of(path: Path) -> FileFacts:
    with path.open("rb") as file:
        return FileFacts(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
