"""Saves steps beside the training: a copy of the state on the critical path, the writing behind it."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rltrain.checkpoint.manifest import Damaged, FileFacts, facts_of
from rltrain.checkpoint.model_files import carry_files
from rltrain.checkpoint.retention import Retention
from rltrain.checkpoint.state import STATE, RunState
from rltrain.checkpoint.steps import ACTOR, MODEL_FILES, SavedSteps
from rltrain.concurrency import ended
from rltrain.config.checkpoint import CheckpointConfig
from rltrain.trainer.protocols import Policy
from rltrain.types.errors import SaveFailed

GIB = 2**30


def retention(config: CheckpointConfig) -> Retention:
    return Retention(
        keep_last=config.keep_last, keep_every=config.keep_every, keep_best=config.keep_best, mode=config.mode
    )


class Saver:
    """One save at a time. `note` shows a line to the user; `num_bytes` is what a step takes on disk."""

    def __init__(
        self,
        config: CheckpointConfig,
        root: Path,
        policy: Policy,
        *,
        model: Path,
        num_bytes: int,
        note: Callable[[str], None],
        newest: int | None = None,
    ) -> None:
        """`model` is where the config and the tokenizer are; `newest` the step in `root` that the run goes on from."""
        self._config, self._root, self._policy = config, root, policy
        self._model, self._num_bytes, self._note = model, num_bytes, note
        self._steps = SavedSteps(root, retention(config), metric=config.metric)
        self._writing: asyncio.Future[None] | None = None
        self._newest = newest

    def due(self, step: int, *, last: int) -> bool:
        """After every so many steps and after the last one."""
        every = self._config.every
        return every is not None and (step % every == 0 or step == last) and step != self._newest

    async def begin(self, state: RunState) -> bool:
        """Copies the state of now; False where the save failed and the run is to go on without it.

        Waits for the save before it. Raises SaveFailed where `checkpoint.on_failure` is `stop`.
        """
        await self.settled()
        step = state.step
        try:
            partial = await asyncio.to_thread(self._prepare, step)
            updates = await self._policy.save(str(partial / ACTOR), moments=self._config.optimizer)
            replace(state, updates=updates, moments=self._config.optimizer).write(partial)
        except OSError as error:
            return self._failed(step, SaveFailed(f"step {step} can't be saved in {self._root}: {error}"))
        except SaveFailed as error:
            return self._failed(step, error)
        return True

    def finish(self, step: int, recorded: Awaitable[Mapping[str, float]]) -> None:
        """Lets what `begin` copied be written behind the next steps; it counts once `recorded` has the metrics."""
        self._writing = asyncio.ensure_future(self._finish(step, recorded))

    async def settled(self) -> None:
        """Waits for the save that is being written. Raises what it raised: SaveFailed, or RunError for the state."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            try:
                await writing
            except BaseException:
                await ended(writing)
                raise

    def check(self) -> None:
        """Raises what the save that is being written raised, if it has ended."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    async def close(self) -> None:
        """Gives up what is being written."""
        await ended(self._writing)

    async def _finish(self, step: int, recorded: Awaitable[Mapping[str, float]]) -> None:
        try:
            files = {f"{ACTOR}/{name}": facts for name, facts in (await self._policy.finish_save()).items()}
            await asyncio.to_thread(self._commit, step, files, await recorded)
            self._newest = step
        except SaveFailed as error:
            self._failed(step, error)
        except BaseException:
            self._steps.abandon(step)
            raise

    def _prepare(self, step: int) -> Path:
        partial = self._steps.begin(step)
        free = shutil.disk_usage(partial).free
        if free < self._num_bytes:
            needed = f"{self._num_bytes / GIB:.3g} GiB, and the disk has {free / GIB:.3g} GiB left"
            raise SaveFailed(f"step {step} can't be saved in {self._root}: it takes {needed}")
        (partial / MODEL_FILES).mkdir()
        carry_files(self._model, partial / MODEL_FILES)
        return partial

    def _commit(self, step: int, files: Mapping[str, FileFacts], metrics: Mapping[str, float]) -> None:
        try:
            partial = self._steps.partial(step)
            small = [partial / STATE, *(partial / MODEL_FILES).iterdir()]
            others = {str(path.relative_to(partial)): facts_of(path) for path in small}
            finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
            self._steps.commit(step, {**others, **files}, metrics=finite)
        except (OSError, Damaged) as error:
            raise SaveFailed(f"step {step} can't be saved in {self._root}: {error}") from error

    def _failed(self, step: int, error: SaveFailed) -> bool:
        self._steps.abandon(step)
        if self._config.on_failure == "stop":
            raise error
        self._note(f"{error}; training goes on, and earlier saved steps are whole")
        return False
