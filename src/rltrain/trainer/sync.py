"""The synchronous driver: every rollout is sampled by the newest weights and trained on before the next begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec

from rltrain.config.algorithm import ReferenceKL
from rltrain.config.namespace import Args
from rltrain.data.cursor import PromptCursor
from rltrain.data.plan import make_plan
from rltrain.telemetry.recorder import Recorder
from rltrain.telemetry.spans import StepClock
from rltrain.telemetry.step_metrics import rollout_metrics
from rltrain.trainer.batches import build_batch, with_advantages
from rltrain.trainer.evaluate import Evaluator
from rltrain.trainer.penalty import kl_penalties
from rltrain.trainer.protocols import Engines, Policy, Rollouts, Weights
from rltrain.types.batch import RolloutBatch, StepPlan
from rltrain.types.metrics import values
from rltrain.types.sample import SampleGroup
from rltrain.types.weights import SyncReport

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop drives."""

    cursor: PromptCursor
    rollouts: Rollouts
    engines: Engines
    policy: Policy
    weights: Weights
    evaluator: Evaluator | None
    recorder: Recorder
    clock: StepClock


class SyncTrainer:
    def __init__(self, args: Args, parts: Parts) -> None:
        self._args = args
        self._parts = parts
        self._version = 0
        self._recording: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """All steps, from the first weight sync to the last evaluation."""
        await self._start()
        for step in range(1, self._args.run.steps + 1):
            await self._step(step)
        await self._recorded()

    async def _start(self) -> None:
        clock = self._parts.clock
        clock.restart()
        metrics = _sync_metrics(await self._push())
        if self._args.eval is not None and self._args.eval.at_start:
            metrics |= await self._evaluate(0)
        await self._record(self._parts.recorder.record_start, metrics, times=clock.finish())

    async def _step(self, step: int) -> None:
        parts, clock = self._parts, self._parts.clock
        prompts = parts.cursor.next(self._args.rollout.prompts_per_step)
        with clock.span("rollout"):
            groups = await parts.rollouts.collect(prompts, step=step)
            await parts.engines.sleep()
        metrics = rollout_metrics(groups, version=self._version)
        batch = build_batch(groups, step=step, version=self._version)
        plan = self._plan(batch)
        batch = await self._scored(batch, plan, groups)
        with clock.span("update"):
            metrics |= values(await parts.policy.update(batch, plan))
        with clock.span("sync"):
            metrics |= _sync_metrics(await self._push())
        if self._eval_due(step):
            metrics |= await self._evaluate(step)
        await self._record(parts.recorder.record_step, step, metrics, times=clock.finish(), groups=groups, batch=batch)

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

    async def _record(self, record: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Writes and shows a step in a thread, while the driver waits for the next rollout; one at a time, in order."""
        await self._recorded()
        self._recording = asyncio.ensure_future(asyncio.to_thread(record, *args, **kwargs))

    async def _recorded(self) -> None:
        if self._recording is not None:
            await self._recording

    def _plan(self, batch: RolloutBatch) -> StepPlan:
        return make_plan(
            batch.total_lengths_B,
            batch.loss_mask.sums(),
            batch.group_B,
            prompts_per_update=self._args.algorithm.prompts_per_update or self._args.rollout.prompts_per_step,
            ranks=self._args.actor.parallel.data,
            tokens_per_micro_batch=self._args.actor.tokens_per_micro_batch,
        )

    async def _push(self) -> SyncReport:
        report = await self._parts.weights.push(version=self._version + 1)
        self._version += 1
        return report

    def _eval_due(self, step: int) -> bool:
        config = self._args.eval
        return config is not None and (step % config.every == 0 or step == self._args.run.steps)

    async def _evaluate(self, step: int) -> dict[str, float]:
        assert self._parts.evaluator is not None
        with self._parts.clock.span("eval"):
            evaluation = await self._parts.evaluator.run(step=step)
        return evaluation.metrics


def _sync_metrics(report: SyncReport) -> dict[str, float]:
    return {"canary/abs_logprob_mean": report.canary_mean, "canary/abs_logprob_max": report.canary_max}
