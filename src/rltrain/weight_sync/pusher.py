"""Brings the trainer's weights to every engine and proves that they arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rltrain.concurrency import ended, together
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.types.errors import RunError
from rltrain.types.model_spec import ModelSpec
from rltrain.types.sample import Floats
from rltrain.types.weights import Canary, SyncPlan, SyncReport
from rltrain.weight_sync.canary import canary_ids, canary_limit, compared
from rltrain.weight_sync.deadline import Deadline
from rltrain.weight_sync.sides import EngineSide, TrainerSide

REFUSE_TIMEOUT_S = 5.0


class WeightPusher:
    """Trainer and engines take turns in shared slots: the trainer fills one while the engines load from the other.

    A sync of a single bucket costs a call to the trainer and one to each engine, then the canary.
    """

    def __init__(
        self,
        trainer: TrainerSide,
        engines: Sequence[EngineSide],
        *,
        config: WeightSyncConfig,
        model: ModelSpec,
        context_length: int,
    ) -> None:
        self._trainer = trainer
        self._engines = engines
        self._config = config
        num_tokens = max(2, min(config.canary_tokens, context_length - 1))
        self._canary = canary_ids(num_tokens, vocab_size=model.vocab_size)
        self._plan: SyncPlan | None = None
        self._scores: Floats | None = None
        """The trainer's log-probs of the canary under the weights of the last push."""
        self._num_pushed = 0

    async def connect(self) -> None:
        """Agrees on the buckets. Raises RunError where the trainer's weights lack some that an engine has."""
        deadline = Deadline(self._config.timeout_s)
        offer = await deadline.wait(self._trainer.offer_weights(), what="the trainer to lay out its weights")
        attached = together(*(engine.attach_weights(offer.plan, offer.slots) for engine in self._engines))
        await deadline.wait(attached, what=f"{self._names} to open the trainer's slots")
        self._plan = offer.plan

    async def push(self, *, version: int) -> SyncReport:
        """Raises RunError or DeadlineExceeded; engines that may hold half a sync then refuse to generate."""
        assert self._plan is not None, "connect() comes first"
        plan = self._plan
        deadline = Deadline(self._config.timeout_s)
        verify = self._num_pushed % self._config.verify_every == 0
        sums = [await self._write(0, verify, deadline)]  # where it raises, no engine was touched
        try:
            self._scores = await self._transfer(plan, sums, version=version, verify=verify, deadline=deadline)
        except BaseException as error:
            await self._refuse(f"the sync of weights version {version} failed: {error}")
            raise
        self._num_pushed += 1
        num_bytes = sum(placed.spec.num_bytes for bucket in plan.buckets for placed in bucket.tensors)
        return SyncReport(num_bytes=num_bytes, verified=verify)

    async def check(self) -> Canary:
        """Compares the canary's log-probs after a push; other requests may run meanwhile.

        Raises RunError where they differ by more than the limit; the engines then refuse to generate.
        """
        assert self._plan is not None and self._scores is not None, "push() comes first"
        try:
            found = await self._engine_scores(Deadline(self._config.timeout_s))
            return compared(self._scores, found, limit=self._config.canary_limit or canary_limit(self._plan))
        except BaseException as error:
            await self._refuse(f"the check of the last weight sync failed: {error}")
            raise

    async def _transfer(
        self, plan: SyncPlan, sums: list[int | None], *, version: int, verify: bool, deadline: Deadline
    ) -> Floats:
        """All buckets but for the first one's writing; the trainer's log-probs of the canary."""
        last = len(plan.buckets) - 1
        for index in range(last):
            loading = self._load(index, sums[index], version=version, verify=verify, deadline=deadline)
            _, written = await together(loading, self._write(index + 1, verify, deadline))
            sums.append(written)
        scoring = deadline.wait(self._trainer.score(self._canary), what="the trainer to score the canary")
        loading = self._load(last, sums[last], version=version, verify=verify, deadline=deadline)
        scores, _ = await together(scoring, loading)
        return scores

    async def _write(self, index: int, verify: bool, deadline: Deadline) -> int | None:
        writing = self._trainer.write_bucket(index, verify=verify)
        return await deadline.wait(writing, what=f"the trainer to write bucket {index}")

    async def _load(self, index: int, sent: int | None, *, version: int, verify: bool, deadline: Deadline) -> None:
        loading = together(*(engine.load_bucket(index, version=version, verify=verify) for engine in self._engines))
        received = await deadline.wait(loading, what=f"{self._names} to load bucket {index}")
        wrong = [engine.name for engine, found in zip(self._engines, received, strict=True) if found != sent]
        if wrong:
            raise RunError(f"weight sync: {', '.join(wrong)} read other bytes of bucket {index} than the trainer wrote")

    async def _engine_scores(self, deadline: Deadline) -> dict[str, Floats]:
        scoring = together(*(engine.score(self._canary) for engine in self._engines))
        found = await deadline.wait(scoring, what=f"{self._names} to score the canary")
        return {engine.name: scores for engine, scores in zip(self._engines, found, strict=True)}

    async def _refuse(self, reason: str) -> None:
        """An engine that doesn't answer is dead or stuck: its error is the one that is being raised already."""
        refusing = [asyncio.ensure_future(engine.refuse(reason)) for engine in self._engines]
        try:
            await asyncio.wait(refusing, timeout=REFUSE_TIMEOUT_S)
        finally:
            await ended(*refusing)

    @property
    def _names(self) -> str:
        return ", ".join(engine.name for engine in self._engines)
