"""The synchronous driver: every rollout is sampled by the newest weights and trained on before the next begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rltrain.checkpoint.state import RunState
from rltrain.concurrency import ended
from rltrain.config.algorithm import ReferenceKL
from rltrain.config.dump import resolved
from rltrain.config.namespace import Args
from rltrain.data.cursor import PromptCursor
from rltrain.data.plan import SampleSizes, Schedule, make_plan
from rltrain.telemetry.environment import package_versions
from rltrain.telemetry.recorder import Recorder
from rltrain.telemetry.spans import StepClock
from rltrain.trainer.batches import build_batch, with_advantages
from rltrain.trainer.evaluate import Evaluator
from rltrain.trainer.penalty import kl_penalties
from rltrain.trainer.protocols import Engines, Policy, Rollouts, Weights
from rltrain.trainer.saving import Saver
from rltrain.trainer.stopping import Stopping
from rltrain.types.batch import RolloutBatch, StepPlan
from rltrain.types.metrics import values
from rltrain.types.model_spec import ModelSpec
from rltrain.types.sample import SampleGroup
from rltrain.types.weights import Canary

Record = Callable[[dict[str, float]], dict[str, float]]
"""Writes and shows a step's metrics; gives back all that it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop drives."""

    cursor: PromptCursor
    schedule: Schedule
    rollouts: Rollouts
    engines: Engines
    policy: Policy
    weights: Weights
    evaluator: Evaluator | None
    recorder: Recorder
    saver: Saver
    stopping: Stopping
    clock: StepClock
    model: ModelSpec
    reference: str | None
    """Digest of the reference's weights, if there is one."""
    resumed: RunState | None
    """Where the run goes on; from its beginning where None."""


class SyncTrainer:
    def __init__(self, args: Args, parts: Parts) -> None:
        self._args = args
        self._parts = parts
        self._version = 0 if parts.resumed is None else parts.resumed.version - 1
        self._recording: asyncio.Future[dict[str, float]] | None = None
        self._canary: asyncio.Future[Canary] | None = None

    async def run(self) -> bool:
        """All steps, from the first weight sync to the last evaluation.

        False where it was stopped before: then the last whole step is saved, if there was any.
        """
        try:
            done = await (self._start() if self._parts.resumed is None else self._go_on(self._parts.resumed))
            if self._args.checkpoint.every is not None:
                self._parts.stopping.heed()
            while done < self._args.run.steps and await self._step(done + 1):
                done += 1
            await self._recorded()
            if done < self._args.run.steps:
                await self._save_last(done)
            await self._parts.saver.settled()
            return done == self._args.run.steps
        finally:
            await ended(self._recording, self._canary)
            await self._parts.saver.close()

    async def _go_on(self, resumed: RunState) -> int:
        """The engines get the weights, and with them the version, that they had after the saved step."""
        await self._push()
        assert self._canary is not None
        await self._canary
        self._parts.clock.restart()
        return resumed.step

    async def _start(self) -> int:
        clock = self._parts.clock
        clock.restart()
        with clock.span("sync"):
            await self._push()
        metrics: dict[str, float] = {}
        if self._args.eval is not None and self._args.eval.at_start:
            metrics |= await self._evaluate(0)
        await self._record(partial(self._parts.recorder.record_start, times=clock.finish()), metrics)
        return 0

    async def _step(self, step: int) -> bool:
        """False where a stop was asked for before the update began: nothing of the step is done then."""
        stopping, cursor = self._parts.stopping, self._parts.cursor
        before = cursor.state_dict()
        sampled = None if stopping.asked else await stopping.unless_asked(self._sample(step))
        if sampled is None:
            cursor.load_state_dict(before)
            return False
        await self._train(step, *sampled)
        return True

    async def _sample(self, step: int) -> tuple[list[SampleGroup], RolloutBatch, StepPlan]:
        parts = self._parts
        prompts = parts.cursor.next(self._args.rollout.prompts_per_step)
        with parts.clock.span("rollout"):
            groups = await parts.rollouts.collect(prompts, step=step)
            await self._recorded()
            await parts.engines.sleep()
        batch = build_batch(groups, step=step, version=self._version)
        plan = self._plan(batch)
        return groups, await self._scored(batch, plan, groups), plan

    async def _train(self, step: int, groups: list[SampleGroup], batch: RolloutBatch, plan: StepPlan) -> None:
        parts, clock = self._parts, self._parts.clock
        with clock.span("update"):
            metrics = values(await parts.policy.update(batch, plan))
        with clock.span("sync"):
            await self._push()
        if self._eval_due(step):
            metrics |= await parts.stopping.unless_asked(self._evaluate(step)) or {}
        saved = await self._save(step)
        record = partial(parts.recorder.record_step, step, times=clock.finish(), groups=groups, batch=batch)
        recording = await self._record(record, metrics)
        if saved:
            parts.saver.finish(step, recording)

    async def _save(self, step: int) -> bool:
        """Whether the step's state was copied and waits to be written."""
        saver = self._parts.saver
        saver.check()
        if not saver.due(step, last=self._args.run.steps):
            return False
        with self._parts.clock.span("save"):
            return await saver.begin(self._state(step))

    async def _save_last(self, step: int) -> None:
        """After a stop; whatever the interval, unless that step is saved already."""
        saver = self._parts.saver
        await saver.settled()
        if step and saver.due(step, last=step) and await saver.begin(self._state(step)):
            assert self._recording is not None, "a step that isn't saved is this process's"
            saver.finish(step, self._recording)

    def _state(self, step: int) -> RunState:
        return RunState(
            step=step,
            version=self._version,
            updates=0,
            moments=False,
            data=self._parts.cursor.state_dict(),
            config=resolved(self._args),
            packages=package_versions(),
            model=self._parts.model.facts(),
            reference=self._parts.reference,
        )

    async def _scored(self, batch: RolloutBatch, plan: StepPlan, groups: Sequence[SampleGroup]) -> RolloutBatch:
        """With the log-probs that the update needs, and advantages."""
        parts, clock, kl = self._parts, self._parts.clock, self._args.algorithm.kl
        kl_in_reward = isinstance(kl, ReferenceKL) and kl.place == "reward"
        if len(plan.steps) > 1 or kl_in_reward:  # with one optimizer step, the update's own forward pass gives them
            with clock.span("logprob"):
                batch = replace(batch, old_logprobs=await parts.policy.logprobs(batch, plan, model="actor"))
        if isinstance(kl, ReferenceKL):
            with clock.span("reference"):
                batch = replace(batch, reference_logprobs=await parts.policy.logprobs(batch, plan, model="reference"))
        with clock.span("advantage"):
            penalties_B = kl_penalties(batch, kl) if isinstance(kl, ReferenceKL) and kl_in_reward else None
            return with_advantages(batch, groups, config=self._args.algorithm.advantage, penalties_B=penalties_B)

    async def _record(self, record: Record, metrics: dict[str, float]) -> asyncio.Future[dict[str, float]]:
        """Writes and shows a step with its canary, while the next rollout is sampled; one at a time, in order."""
        await self._recorded()
        assert self._canary is not None
        self._recording = asyncio.ensure_future(_recorded_with(record, metrics, self._canary))
        return self._recording

    async def _recorded(self) -> None:
        """Raises RunError where the canary of the last sync failed."""
        if self._recording is not None:
            await asyncio.shield(self._recording)

    def _plan(self, batch: RolloutBatch) -> StepPlan:
        return make_plan(SampleSizes.of(batch, share_prompts=self._args.actor.share_prompts), self._parts.schedule)

    async def _push(self) -> None:
        """The canary is scored while the next rollout runs, unless that must be all that the engines batch."""
        await self._parts.weights.push(version=self._version + 1)
        self._version += 1
        self._canary = asyncio.ensure_future(self._parts.weights.check())
        if self._args.run.deterministic:
            await self._canary

    def _eval_due(self, step: int) -> bool:
        config = self._args.eval
        return config is not None and (step % config.every == 0 or step == self._args.run.steps)

    async def _evaluate(self, step: int) -> dict[str, float]:
        assert self._parts.evaluator is not None
        with self._parts.clock.span("eval"):
            evaluation = await self._parts.evaluator.run(step=step)
        return evaluation.metrics


async def _recorded_with(record: Record, metrics: dict[str, float], canary: Awaitable[Canary]) -> dict[str, float]:
    found = await canary
    whole = metrics | {"canary/abs_logprob_mean": found.mean, "canary/abs_logprob_max": found.largest}
    return await asyncio.to_thread(record, whole)
