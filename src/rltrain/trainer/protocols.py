"""What the loop needs of its parts. Ray, Megatron and vLLM stand behind these; tests use plain objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rltrain.checkpoint.manifest import FileFacts
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan
from rltrain.types.metrics import Metrics
from rltrain.types.sample import Prompt, SampleGroup
from rltrain.types.weights import Canary, SyncReport


class Rollouts(Protocol):
    """Draws and scores the responses to a step's prompts."""

    async def collect(self, prompts: Sequence[Prompt], *, step: int) -> list[SampleGroup]: ...


class Policy(Protocol):
    """The actor, all ranks of it."""

    async def logprobs(self, batch: RolloutBatch, plan: StepPlan, *, model: str) -> Ragged[np.float32]:
        """Log-probs of every response token under `actor` or `reference`, over the rollout's temperature."""
        ...

    async def update(self, batch: RolloutBatch, plan: StepPlan) -> Metrics:
        """One optimizer step for each of the plan's."""
        ...

    async def save(self, directory: str, *, moments: bool) -> int:
        """Copies the weights, and with `moments` the optimizer's, and starts to write them; updates done so far."""
        ...

    async def finish_save(self) -> Mapping[str, FileFacts]:
        """Waits for the files that `save` started, beside other calls; by name in its directory.

        Raises SaveFailed where the disk can't take them, RunError for a weight that isn't finite.
        """
        ...

    async def export(self, directory: str) -> None:
        """Writes the weights as a Hugging Face directory."""
        ...


class Engines(Protocol):
    """What generates, as far as its memory is in the trainer's way."""

    async def sleep(self) -> None:
        """After a rollout, before training; the next weight sync wakes them. May do nothing."""
        ...


class Weights(Protocol):
    """Brings the actor's weights to every engine."""

    async def push(self, *, version: int) -> SyncReport: ...

    async def check(self) -> Canary:
        """Proof that the last push arrived: the same tokens scored by trainer and engines."""
        ...


class Stateful(Protocol):
    """Every part that changes over a run can hand over its state and take it back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
