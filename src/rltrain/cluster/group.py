"""The workers of a run as plain objects: `TrainerGroup` is the actor's ranks, `EngineHandle` one engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray

from rltrain.checkpoint.manifest import FileFacts
from rltrain.cluster.calls import all_of, one, within
from rltrain.cluster.hosts import EngineHost, TrainerHost
from rltrain.cluster.placement import WorkerShare, actor_options
from rltrain.concurrency import together
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan
from rltrain.types.generation import GenerateRequest, GenerateResult
from rltrain.types.metrics import Metrics, merged
from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import SyncPlan
from rltrain.weight_sync.sides import WeightsOffer


class Worker:
    """One actor with its name, its log and its death."""

    def __init__(
        self,
        host: type,
        share: WorkerShare,
        *,
        target: str,
        setup: Any,
        environment: dict[str, str],
        logs: Path,
        options: dict[str, Any],
    ) -> None:
        self.name = share.name
        self._logs = str(logs)
        actor = ray.remote(**actor_options(share, environment), **options)(host)
        self.handle: Any = actor.remote(target, setup, str(logs / f"{share.name}.log"))

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await one(self.handle.call.remote(method, *args, **kwargs), name=self.name, logs=self._logs)

    async def ask(self, method: str, **options: Any) -> Any:
        """A method of the host itself."""
        return await one(getattr(self.handle, method).options(**options).remote(), name=self.name, logs=self._logs)


class TrainerGroup:
    """All ranks of the actor; implements the loop's `Policy`."""

    def __init__(
        self, shares: Sequence[WorkerShare], *, target: str, setup: Any, environment: dict[str, str], logs: Path
    ) -> None:
        self._logs = str(logs)
        self.workers = [
            Worker(
                TrainerHost,
                share,
                target=target,
                setup=setup,
                environment=environment | {"OMP_NUM_THREADS": str(share.num_threads)},
                logs=logs,
                options={"concurrency_groups": {"lifeline": 1, "saving": 1}},
            )
            for share in shares
        ]

    @property
    def first(self) -> Worker:
        return self.workers[0]

    async def join(self, *, timeout_s: float) -> tuple[Any, ...]:
        """Brings the ranks' process group up and loads the model on each."""
        names = ", ".join(worker.name for worker in self.workers)
        return await within(timeout_s, self._join(), what=f"{names} to load the model")

    async def _join(self) -> tuple[Any, ...]:
        host, port = await self.first.ask("address")
        world = len(self.workers)
        calls = [
            worker.handle.call.remote("join", rank=rank, world_size=world, address=host, port=port)
            for rank, worker in enumerate(self.workers)
        ]
        joined = await self._all(calls)
        await self._all([worker.handle.settle.remote() for worker in self.workers])
        return joined

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return await self._all([worker.handle.call.remote(method, *args, **kwargs) for worker in self.workers])

    async def _all(self, references: Sequence[Any]) -> tuple[Any, ...]:
        return await all_of(references, names=[worker.name for worker in self.workers], logs=self._logs)

    async def logprobs(self, batch: RolloutBatch, plan: StepPlan, *, model: str) -> Ragged[np.float32]:
        parts = await self.call_all("logprobs", self._shared(batch), plan, model=model)
        rows: list[np.ndarray[Any, np.dtype[np.float32]]] = [np.zeros(0, np.float32)] * len(batch)
        for numbers, ragged in parts:
            for place, number in enumerate(numbers):
                rows[number] = ragged[place]
        return Ragged[np.float32].of(rows, np.float32)

    async def update(self, batch: RolloutBatch, plan: StepPlan) -> Metrics:
        return merged(await self.call_all("update", self._shared(batch), plan))

    async def reference_digest(self) -> str:
        return (await self.call_all("reference_digest"))[0]

    async def save(self, directory: str, *, moments: bool) -> int:
        return (await self.call_all("save", directory, moments=moments))[0]

    async def finish_save(self) -> dict[str, FileFacts]:
        on_other_threads = {"concurrency_group": "saving"}
        calls = [worker.handle.beside.options(**on_other_threads).remote("finish_save") for worker in self.workers]
        return dict(await self._all(calls))

    async def export(self, directory: str) -> None:
        await self.call_all("export_hf", directory)

    def _shared(self, batch: RolloutBatch) -> Any:
        """One copy in the object store for all ranks; a single rank gets it with the call."""
        return ray.put(batch) if len(self.workers) > 1 else batch

    async def offer_weights(self) -> WeightsOffer:
        return (await self.call_all("offer_weights"))[0]

    async def write_bucket(self, index: int, *, verify: bool) -> int | None:
        return (await self.call_all("write_bucket", index, verify=verify))[0]

    async def score(self, token_ids: Ids) -> Floats:
        return next(found for found in await self.call_all("score", token_ids) if found is not None)

    async def lifelines(self) -> None:
        """Never returns; raises WorkerDied when a rank died."""
        await together(*(worker.ask("lifeline", concurrency_group="lifeline") for worker in self.workers))


class EngineHandle:
    """One vLLM engine; implements the rollout's `EngineClient` and the weight sync's engine side."""

    def __init__(
        self,
        share: WorkerShare,
        *,
        target: str,
        setup: Any,
        environment: dict[str, str],
        logs: Path,
        max_concurrency: int,
    ) -> None:
        options = {"max_concurrency": max_concurrency}
        environment = environment | {"OMP_NUM_THREADS": str(share.num_threads)}
        self.worker = Worker(
            EngineHost, share, target=target, setup=setup, environment=environment, logs=logs, options=options
        )

    @property
    def name(self) -> str:
        return self.worker.name

    async def start(self, *, timeout_s: float) -> Any:
        return await within(timeout_s, self.worker.call("start"), what=f"{self.name} to start")

    async def generate(self, requests: Sequence[GenerateRequest], *, admit_together: bool) -> list[GenerateResult]:
        return await self.worker.call("generate", list(requests), admit_together=admit_together)

    async def score(self, token_ids: Ids) -> Floats:
        return await self.worker.call("score", token_ids)

    async def attach_weights(self, plan: SyncPlan, slots: Sequence[str]) -> None:
        await self.worker.call("attach_weights", plan, list(slots))

    async def load_bucket(self, index: int, *, version: int, verify: bool) -> int | None:
        return await self.worker.call("load_bucket", index, version=version, verify=verify)

    async def sleep(self) -> None:
        await self.worker.call("sleep")

    async def memory(self) -> dict[str, int]:
        """See `VllmEngine.memory`."""
        return await self.worker.call("memory")

    async def refuse(self, reason: str) -> None:
        await self.worker.call("refuse", reason)

    async def lifeline(self) -> None:
        """Never returns; raises WorkerDied when the engine died."""
        await self.worker.ask("lifeline")
