"""Where a run is in its prompt set: the order of prompts, epochs, shares of sources, and all of it resumable."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rltrain.config.data import DataConfig
from rltrain.config.errors import UserError
from rltrain.data.prompts import PromptSet
from rltrain.types.sample import Prompt


class PromptCursor:
    """Draws prompts. Each epoch of a source has every prompt of it once; sources alternate so that shares hold exactly.

    All there is to remember is how many prompts each source has given.
    """

    def __init__(self, prompt_set: PromptSet, config: DataConfig) -> None:
        self._set = prompt_set
        self._config = config
        self._drawn = [0] * len(prompt_set.sources)
        weights = [source.weight for source in prompt_set.sources]
        self._shares = [weight / sum(weights) for weight in weights]
        self._order = lru_cache(maxsize=2 * len(weights))(self._new_order)

    @property
    def drawn(self) -> int:
        """Prompts drawn so far."""
        return sum(self._drawn)

    @property
    def epoch(self) -> int:
        """Whole passes over the set; with several sources, over the one with the fewest passes."""
        return min(self._passes())

    def check(self, steps: int, prompts_per_step: int) -> None:
        """Raises UserError where `steps` steps from the start would break `small: error` or `max_epochs`."""
        self._check_size(prompts_per_step)
        most = self._config.max_epochs
        if most is None:
            return
        for share, source in zip(self._shares, self._set.sources, strict=True):
            size = source.end - source.start
            needed = share * steps * prompts_per_step
            if needed > size * most:
                allowed = int(size * most / (share * prompts_per_step))
                rule = (
                    f"{steps} steps of {prompts_per_step} prompts are {needed / size:.2f} epochs of {source.path.name}"
                )
                hint = f"run.steps may be {allowed}, or raise max_epochs"
                raise UserError.single("data.max_epochs", f"{rule}, which has {size}", value=most, hint=hint)

    def next(self, count: int) -> list[Prompt]:
        """The next `count` prompts. Raises UserError where the set is smaller and `small` is `error`."""
        self._check_size(count)
        return [self._draw() for _ in range(count)]

    def state_dict(self) -> dict[str, Any]:
        """Only JSON values; loading it into a cursor over the same set goes on with the next prompt."""
        return {
            "drawn": list(self._drawn),
            "epoch": self.epoch,
            "seed": self._config.seed,
            "shuffle": self._config.shuffle,
            "shares": list(self._shares),
            "fingerprint": self._set.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises UserError where the state is of another set or another order."""
        here = self.state_dict()
        for name, key in (("fingerprint", "sources"), ("seed", "seed"), ("shuffle", "shuffle"), ("shares", "sources")):
            if state[name] != here[name]:
                rule = f"the saved prompt order has {name} {state[name]}, this config's has {here[name]}"
                raise UserError.single(f"data.{key}", rule, hint="resume with the data section of the saved run")
        self._drawn = [int(count) for count in state["drawn"]]

    def _check_size(self, count: int) -> None:
        size = len(self._set.prompts)
        if size < count and self._config.small == "error":
            rule = f"{size} prompts < {count} prompts of a step"
            hint = "data.small: repeat draws prompts several times a step, or lower rollout.prompts_per_step"
            raise UserError.single("data.small", rule, value="error", hint=hint)

    def _passes(self) -> list[int]:
        sizes = (source.end - source.start for source in self._set.sources)
        return [drawn // size for drawn, size in zip(self._drawn, sizes, strict=True)]

    def _draw(self) -> Prompt:
        """Takes the source that is furthest behind its share."""
        due = self.drawn + 1
        behind = [share * due - drawn for share, drawn in zip(self._shares, self._drawn, strict=True)]
        index = behind.index(max(behind))
        source = self._set.sources[index]
        epoch, position = divmod(self._drawn[index], source.end - source.start)
        self._drawn[index] += 1
        return self._set.prompts[source.start + int(self._order(index, epoch)[position])]

    def _new_order(self, source: int, epoch: int) -> npt.NDArray[np.int64]:
        """A permutation from the generator's raw numbers, whose stream numpy keeps stable over versions."""
        span = self._set.sources[source]
        size = span.end - span.start
        if not self._config.shuffle:
            return np.arange(size)
        raw = np.random.PCG64(np.random.SeedSequence([self._config.seed, source, epoch])).random_raw(size)
        return np.argsort(raw, kind="stable")
