"""The directory of a run's saved steps: each is written aside, becomes `step_N` whole, and then others are removed.

What was interrupted leaves a `.step_N.partial`, which nothing reads and the next save of a step removes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rltrain.checkpoint.manifest import Damaged, FileFacts, Manifest
from rltrain.checkpoint.retention import Retention
from rltrain.telemetry.atomic import sync, sync_tree

LATEST = "latest"
"""File with the newest whole step's name, for people and scripts; `newest` looks at the steps themselves."""
ACTOR = "actor"
"""A role's directory in a step."""
MODEL_FILES = "hf"
"""Directory of a step with the model's config and tokenizer."""
NAME = re.compile(r"step_(0|[1-9][0-9]*)")
PARTIAL = re.compile(r"\.step_[0-9]+\.partial")


@dataclass(frozen=True, slots=True)
class SavedStep:
    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    def check(self, name: str) -> None:
        """Reads a file through. Raises Damaged where it isn't what was written."""
        self.manifest.check_file(self.path, name, contents=True)


class SavedSteps:
    """One process writes; any number may read meanwhile."""

    def __init__(self, root: Path, retention: Retention, *, metric: str | None = None) -> None:
        """`metric` is what the retention's best are judged by."""
        self._root, self._retention, self._metric = root, retention, metric

    @classmethod
    def reading(cls, root: Path) -> SavedSteps:
        """To look at alone."""
        return cls(root, Retention())

    def begin(self, step: int) -> Path:
        """An empty directory to write a step's files to; what an interrupted save left is removed. Raises OSError."""
        self._root.mkdir(parents=True, exist_ok=True)
        for left in self._root.iterdir():
            if PARTIAL.fullmatch(left.name):
                shutil.rmtree(left)
        partial = self.partial(step)
        partial.mkdir()
        return partial

    def commit(self, step: int, files: Mapping[str, FileFacts], *, metrics: Mapping[str, float]) -> SavedStep:
        """Makes what was written the newest step, then removes those that the retention doesn't keep.

        Every file below `begin`'s directory is named in `files`. Raises Damaged where one isn't there as it was
        written, OSError where the disk fails: earlier steps and `latest` are as they were.
        """
        partial, path = self.partial(step), self._root / f"step_{step}"
        manifest = Manifest(step=step, files=dict(files), metrics=dict(metrics))
        manifest.check(partial, contents=False)
        sync_tree(partial)
        manifest.write(partial)
        sync(partial)
        if path.exists():  # a damaged one: a whole one of this step isn't written again
            shutil.rmtree(path)
        partial.rename(path)
        sync(self._root)
        self._point(path.name)
        self._prune()
        return SavedStep(path, manifest)

    def abandon(self, step: int) -> None:
        """Removes what a failed save left, as far as that can be done."""
        shutil.rmtree(self.partial(step), ignore_errors=True)

    def whole(self) -> Iterator[SavedStep]:
        """Steps whose files are there with their sizes, newest first, by number."""
        for _, found in self._found():
            if isinstance(found, SavedStep):
                yield found

    def damaged(self) -> dict[int, str]:
        """The others that are named as steps are, and what is wrong with each."""
        return {step: str(found) for step, found in self._found() if isinstance(found, Damaged)}

    def newest(self) -> SavedStep | None:
        return next(self.whole(), None)

    def _found(self) -> Iterator[tuple[int, SavedStep | Damaged]]:
        names = [match for path in self._paths() if (match := NAME.fullmatch(path.name))]
        for match in sorted(names, key=lambda match: int(match[1]), reverse=True):
            path = self._root / match[0]
            try:
                manifest = Manifest.read(path)
                manifest.check(path, contents=False)
                yield int(match[1]), SavedStep(path, manifest)
            except Damaged as error:
                yield int(match[1]), error

    def _paths(self) -> list[Path]:
        return list(self._root.iterdir()) if self._root.is_dir() else []

    def partial(self, step: int) -> Path:
        """Where a step's files are written."""
        return self._root / f".step_{step}.partial"

    def _point(self, name: str) -> None:
        temporary = self._root / f".{LATEST}.partial"
        temporary.write_text(f"{name}\n", encoding="utf-8")
        sync(temporary)
        temporary.replace(self._root / LATEST)
        sync(self._root)

    def _prune(self) -> None:
        """Looks at the disk, not at what this process remembers; damaged ones are left for people to look at."""
        steps = {saved.step: saved for saved in self.whole()}
        metric = self._metric
        judged = {step: None if metric is None else saved.manifest.metrics.get(metric) for step, saved in steps.items()}
        for step in steps.keys() - self._retention.kept(judged):
            doomed = self.partial(step)  # first out of sight, so that none is ever half there
            steps[step].path.rename(doomed)
            shutil.rmtree(doomed)
