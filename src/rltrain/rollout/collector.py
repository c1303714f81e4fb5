"""Draws and scores the responses to prompts: for training, and for each evaluation set with its own sampling."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rltrain.concurrency import ended
from rltrain.config.rollout import SamplingConfig
from rltrain.rollout.client import EngineClient, GroupScorer
from rltrain.rollout.groups import sample_group
from rltrain.rollout.seeds import request_seed
from rltrain.rollout.shares import Call, split_over_engines
from rltrain.telemetry.spans import StepClock
from rltrain.types.errors import DeadlineExceeded, RunError
from rltrain.types.generation import GenerateRequest, Sampling
from rltrain.types.sample import Prompt, SampleGroup, Status

FAILURES = frozenset({Status.GENERATION_FAILED, Status.ABORTED, Status.REWARD_TIMEOUT, Status.REWARD_ERROR})
"""What counts for `reward.max_failed_share`."""
MOST_DETAILS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How responses are drawn."""

    stream: str
    """`train`, or an evaluation set's name: streams have seeds of their own."""
    sampling: SamplingConfig
    samples_per_prompt: int
    eos_ids: tuple[int, ...]
    """Every EOS id of the model; they end a response unless `sampling.ignore_eos`."""
    vocab_limit: int
    """Ids that the tokenizer has."""
    run_seed: int
    deterministic: bool
    timeout_s: float
    """Longest a step's generation may take."""
    max_failed_share: float


class RolloutCollector:
    """Implements the loop's `Rollouts`. It holds no state, so evaluation can't change what training draws."""

    def __init__(
        self,
        engines: Sequence[EngineClient],
        scorer: GroupScorer,
        draw: Draw,
        *,
        clock: StepClock | None = None,
    ) -> None:
        """On `clock`, the wait for rewards after the last response counts as `reward`."""
        self._engines = engines
        self._scorer = scorer
        self._draw = draw
        self._clock = clock

    async def collect(self, prompts: Sequence[Prompt], *, step: int) -> list[SampleGroup]:
        """A group for each prompt, in order, scored.

        Raises DeadlineExceeded when generation takes longer than `timeout_s`, RunError when too many samples failed.
        """
        calls = split_over_engines(
            len(prompts),
            num_engines=len(self._engines),
            tokens_per_group=self._draw.samples_per_prompt * self._draw.sampling.max_tokens,
            one_call=self._draw.deterministic,
        )
        generating = {asyncio.create_task(self._generate(call, prompts, step)): call for call in calls}
        scoring: dict[int, asyncio.Future[list[SampleGroup]]] = {}
        try:
            async with asyncio.timeout(self._draw.timeout_s):
                await self._score_as_they_come(generating, scoring)
        except TimeoutError:
            raise DeadlineExceeded(self._late(generating, step)) from None
        else:
            with self._reward_span():
                scored = {start: await task for start, task in scoring.items()}
        finally:
            await ended(*generating, *scoring.values())
        groups = [group for start in sorted(scored) for group in scored[start]]
        check_failures(groups, limit=self._draw.max_failed_share, step=step)
        return groups

    async def _score_as_they_come(
        self,
        generating: dict[asyncio.Task[list[SampleGroup]], Call],
        scoring: dict[int, asyncio.Future[list[SampleGroup]]],
    ) -> None:
        """Returns when everything was generated; what was scored by then is in `scoring`, or still under way."""
        pending = set(generating)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                groups = task.result()
                scoring[generating[task].start] = asyncio.ensure_future(self._scorer.score(groups))

    async def _generate(self, call: Call, prompts: Sequence[Prompt], step: int) -> list[SampleGroup]:
        draw = self._draw
        requests = [self._request(place, prompts[place], step) for place in range(call.start, call.end)]
        together = draw.deterministic or self._alone(call, len(prompts))
        results = await self._engines[call.engine].generate(requests, admit_together=together)
        return [
            sample_group(
                f"{step}/{place}",
                prompts[place],
                result=result,
                n=draw.samples_per_prompt,
                vocab_limit=draw.vocab_limit,
            )
            for place, result in zip(range(call.start, call.end), results, strict=True)
        ]

    def _alone(self, call: Call, num_prompts: int) -> bool:
        """Whether it is all that the engine gets: then it needn't start on the first of its requests alone."""
        return call.end - call.start >= num_prompts // len(self._engines)

    def _request(self, place: int, prompt: Prompt, step: int) -> GenerateRequest:
        draw, config = self._draw, self._draw.sampling
        seeded = draw.deterministic and config.temperature > 0
        n = draw.samples_per_prompt
        seed = request_seed(draw.run_seed, stream=draw.stream, step=step, group=place, n=n) if seeded else None
        sampling = Sampling(
            n=n,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            min_p=config.min_p,
            stop=config.stop,
            stop_token_ids=stop_ids(config, draw.eos_ids),
            ignore_eos=config.ignore_eos,
            seed=seed,
        )
        return GenerateRequest(
            request_id=f"{draw.stream}/{step}/{place}", prompt_ids=prompt.token_ids, sampling=sampling
        )

    def _reward_span(self) -> AbstractContextManager[None]:
        return nullcontext() if self._clock is None else self._clock.span("reward")

    def _late(self, generating: dict[asyncio.Task[list[SampleGroup]], Call], step: int) -> str:
        late = Counter(
            self._engines[call.engine].name
            for task, call in generating.items()
            for _ in range(call.start, call.end)
            if task.cancelled() or not task.done()
        )
        waiting = ", ".join(f"{name} ({count} groups)" for name, count in late.items())
        return f"step {step}: generation took longer than rollout.timeout_s = {self._draw.timeout_s:g} s: {waiting}"


def stop_ids(config: SamplingConfig, eos_ids: tuple[int, ...]) -> tuple[int, ...]:
    """The config's own, and every EOS id unless those are to be ignored."""
    return tuple(dict.fromkeys((*config.stop_token_ids, *(() if config.ignore_eos else eos_ids))))


def check_failures(groups: Sequence[SampleGroup], *, limit: float, step: int) -> None:
    """Raises RunError with the first details when more than `limit` of the samples failed."""
    samples = [sample for group in groups for sample in group.samples]
    failed = [sample for sample in samples if sample.status in FAILURES]
    if len(failed) <= limit * len(samples):
        return
    details = [f"{sample.group_id}/{sample.index} {sample.status}: {sample.detail}" for sample in failed]
    shown = "\n".join(details[:MOST_DETAILS])
    raise RunError(
        f"step {step}: {len(failed)} of {len(samples)} samples failed "
        f"(reward.max_failed_share is {limit:g}). The first of them:\n{shown}"
    )
