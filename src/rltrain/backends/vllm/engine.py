"""One vLLM engine: generates, takes new weights, scores. It knows no Ray; `cluster` puts it into an actor."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from typing import Any

import torch
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from rltrain.backends.vllm.arguments import engine_arguments
from rltrain.backends.vllm.installation import installed_vllm
from rltrain.backends.vllm.releases import REFUSALS, name_weights
from rltrain.backends.vllm.sampling import no_room, prompt_logprobs, result, sampling_params, scoring_params
from rltrain.backends.vllm.setup import EngineInfo, EngineSetup
from rltrain.concurrency import together
from rltrain.types.errors import RunError
from rltrain.types.generation import GenerateRequest, GenerateResult
from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import SyncPlan

WATCH_INTERVAL_S = 0.5


class VllmEngine:
    """Its methods are called from one event loop and may overlap; vLLM's EngineDeadError passes through."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._llm: AsyncLLM | None = None
        self._num_buckets = 0
        self._version = 0
        self._refusal: str | None = "the engine got no weights yet" if setup.random_init else None
        self._num_scored = 0
        self._asleep = False

    async def start(self) -> EngineInfo:
        """Starts the engine's process and loads the model. Raises UserError for arguments that vLLM refuses."""
        distribution, release = installed_vllm()
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(self._setup)))
        (pid, *_) = await self._llm.collective_rpc("rltrain_die_with", args=(os.getpid(),))
        await name_weights(self._core, self._version)
        gc.collect()
        gc.freeze()  # else full collections walk all that vLLM's import made: a fifth of a short generation
        return EngineInfo(pid=pid, versions={distribution: release, "torch": torch.__version__})

    async def generate(self, requests: Sequence[GenerateRequest], *, admit_together: bool) -> list[GenerateResult]:
        """A result for each request in their order; one that can't be served comes back with an error.

        `admit_together` fixes what the engine batches: it starts when all of the requests have arrived, in order.
        """
        self._check_ready()
        if not admit_together:
            return list(await together(*(self._generate(request) for request in requests)))
        await self._core.pause_scheduler_async(mode="keep", clear_cache=True)
        try:
            admitted = [await self._admit(request) for request in requests]
        finally:
            await self._core.resume_scheduler_async()
        return [await self._finished(request, queue) for request, queue in zip(requests, admitted, strict=True)]

    async def attach_weights(self, plan: SyncPlan, slots: Sequence[str]) -> None:
        """Opens the trainer's slots. Raises RunError where the plan lacks weights that the model has."""
        buckets = [
            [(placed.spec.name, placed.spec.dtype, list(placed.spec.shape), placed.offset) for placed in bucket.tensors]
            for bucket in plan.buckets
        ]
        missing = {name for names in await self._workers("rltrain_attach", buckets, list(slots)) for name in names}
        if missing:
            raise RunError(f"the trainer's weights lack {', '.join(sorted(missing))}, which the engine's model has")
        self._num_buckets = len(plan.buckets)

    async def load_bucket(self, index: int, *, version: int, verify: bool) -> int | None:
        """Loads a bucket of a sync from its slot; its checksum if `verify`.

        The first bucket pauses generation and drops all caches, the last one names the weights `version` and resumes.
        An engine that sleeps wakes in two parts, memory for the weights first and for the KV cache when they are there.
        After an error the engine refuses to generate until a later sync went through.
        """
        if index == 0:
            self._refusal = f"the sync of weights version {version} didn't finish"
            await self._core.pause_scheduler_async(mode="keep", clear_cache=True)
            if self._asleep:
                await self._engine.wake_up(["weights"])
        sums = await self._workers("rltrain_load", index, verify)
        if index == self._num_buckets - 1:
            if self._asleep:
                await self._engine.wake_up(["kv_cache"])
                self._asleep = False
            await name_weights(self._core, version)
            await self._core.resume_scheduler_async()
            self._version = version
            self._refusal = None
        if len(set(sums)) > 1:
            raise RunError(f"the engine's workers read different bytes of bucket {index}: checksums {sums}")
        return sums[0]

    async def sleep(self) -> None:
        """Gives up the memory of weights and KV cache; the next sync wakes it. Responses under way are dropped."""
        self._refusal = "it sleeps until the next weight sync"
        await self._engine.sleep(level=2, mode="abort")
        self._asleep = True

    async def memory(self) -> dict[str, int]:
        """`used`: bytes of the GPU in use by any process; `peak`: by this engine's tensors so far."""
        (found, *_) = await self._workers("rltrain_memory")
        return found

    async def refuse(self, reason: str) -> None:
        """Generates nothing from now on until a sync went through."""
        self._refusal = reason

    async def score(self, token_ids: Ids) -> Floats:
        """Log-probs of `token_ids[1:]` at temperature 1, computed anew."""
        self._check_ready()
        self._num_scored += 1
        prompt = _rendered(token_ids)
        queue = await self._engine.add_request(f"score-{self._num_scored}", prompt, scoring_params())
        return prompt_logprobs(await queue.get(), token_ids)

    async def health(self) -> None:
        """Raises EngineDeadError when the engine's process has ended; asks every worker for a sign of life."""
        await self._engine.check_health()
        await self._workers("check_health")

    async def watch(self) -> None:
        """Never returns; raises EngineDeadError when the engine's process has ended.

        A call of it that is under way then, such as loading weights, is not ended by vLLM and would wait on.
        """
        while self._llm is None or not self._llm.errored:
            await asyncio.sleep(WATCH_INTERVAL_S)
        raise self._llm.dead_error

    async def close(self) -> None:
        """Ends the engine's process."""
        if self._llm is not None:
            self._llm.shutdown(timeout=5)
            self._llm = None
            gc.unfreeze()

    @property
    def _engine(self) -> AsyncLLM:
        assert self._llm is not None, "the engine isn't started"
        return self._llm

    @property
    def _core(self) -> Any:
        return self._engine.engine_core

    async def _workers(self, method: str, *args: Any) -> list[Any]:
        return await self._engine.collective_rpc(method, args=args)

    def _check_ready(self) -> None:
        if self._refusal is not None:
            raise RunError(f"the engine refuses to generate: {self._refusal}")

    async def _generate(self, request: GenerateRequest) -> GenerateResult:
        return await self._finished(request, await self._admit(request))

    async def _admit(self, request: GenerateRequest) -> Any:
        """The queue that the output comes in, or the result that is known already."""
        room = self._setup.context_length - len(request.prompt_ids)
        if room <= 0:
            return no_room(request.request_id, request.sampling)
        limit = self._engine.model_config.get_vocab_size()
        if not len(request.prompt_ids) or request.prompt_ids.min() < 0 or request.prompt_ids.max() >= limit:
            # Without a tokenizer vLLM checks neither, and the engine's process dies of it.
            error = f"the prompt is empty or has ids outside of 0 to {limit - 1}"
            return GenerateResult(request_id=request.request_id, error=error)
        params = sampling_params(request.sampling, max_tokens=min(request.sampling.max_tokens, room))
        prompt = _rendered(request.prompt_ids)
        try:
            return await self._engine.add_request(request.request_id, prompt, params)
        except REFUSALS as error:
            return GenerateResult(request_id=request.request_id, error=f"{type(error).__name__}: {error}")

    async def _finished(self, request: GenerateRequest, admitted: Any) -> GenerateResult:
        if isinstance(admitted, GenerateResult):
            return admitted
        return result(request.request_id, await admitted.get(), version=self._version)


def _rendered(token_ids: Ids) -> Any:
    """What vLLM's renderer makes of a prompt of ids; without this it is rendered in a thread, a prompt at a time."""
    return {"type": "token", "prompt_token_ids": token_ids.tolist()}
