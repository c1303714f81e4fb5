"""Scores groups of samples by the weighted sum of the configured parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rltrain.concurrency import together
from rltrain.config.errors import UserError
from rltrain.config.reward import Custom, Math, RewardConfig, RewardPart
from rltrain.rewards.functions import FACTORIES, Inline
from rltrain.rewards.outcome import Failure, Score
from rltrain.rewards.pool import Pool
from rltrain.types.sample import Ids, Prompt, Sample, SampleGroup, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """Texts that answer one prompt, to be scored together."""

    name: str
    """Group id, for messages."""
    prompt: Prompt
    texts: tuple[str, ...]
    indices: tuple[int, ...]
    """The texts' places in their group, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A response's reward and its parts by name; or the status and the reason why there is none."""

    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    status: Status = Status.OK
    part: str = ""
    """Which part failed."""
    reason: str = ""
    detail: str = ""
    """The reason with the part and the sample."""


class Rewarder:
    """Inline parts run in the driver, `math` and `custom` ones in a pool of processes each."""

    def __init__(
        self,
        config: RewardConfig,
        *,
        decode: Callable[[Ids], str],
        search_path: Path,
        log_directory: Path | None = None,
    ) -> None:
        """`decode` gives a response's text; workers print to `log_directory`/reward_<part>.log, or nowhere."""
        self._config = config
        self._decode = decode
        self._inline: dict[str, Inline] = {}
        self._pools: dict[str, Pool] = {}
        for name, part in config.parts.items():
            if isinstance(part, Math | Custom):
                log = None if log_directory is None else log_directory / f"reward_{name}.log"
                self._pools[name] = Pool(
                    name,
                    part,
                    size=config.workers,
                    timeout_s=config.timeout_s,
                    search_path=search_path,
                    log=log,
                )
            else:
                self._inline[name] = FACTORIES[type(part)](part)

    async def start(self) -> None:
        """Starts the worker processes, if any. Raises UserError with every function that can't be loaded."""
        results = await asyncio.gather(*(pool.start() for pool in self._pools.values()), return_exceptions=True)
        errors = [result for result in results if result is not None]
        if errors:
            await self.close()
        for error in errors:
            if not isinstance(error, UserError):
                raise error
        if problems := [problem for error in errors if isinstance(error, UserError) for problem in error.problems]:
            raise UserError(problems)

    async def close(self) -> None:
        """Ends the worker processes; `start` makes new ones."""
        for pool in self._pools.values():
            await pool.close()

    async def score(self, groups: Sequence[SampleGroup]) -> list[SampleGroup]:
        """The groups with rewards. Samples that aren't OK pass through; those that can't be scored get a status."""
        responses = [self._responses(group) for group in groups]
        scored = await self.score_texts(responses)
        return [_with_rewards(group, results) for group, results in zip(groups, scored, strict=True)]

    async def score_texts(self, groups: Sequence[Responses]) -> list[list[Scored]]:
        """A result for each text of each group."""
        parts = list(self._config.parts)
        by_part = await together(*(self._part(name, groups) for name in parts))
        return [
            [
                self._total({name: by_part[part][place][index] for part, name in enumerate(parts)}, group, index)
                for index in range(len(group.texts))
            ]
            for place, group in enumerate(groups)
        ]

    def _responses(self, group: SampleGroup) -> Responses:
        usable = [sample for sample in group.samples if sample.status is Status.OK]
        return Responses(
            name=group.group_id,
            prompt=group.prompt,
            texts=tuple(self._decode(sample.response_ids) for sample in usable),
            indices=tuple(sample.index for sample in usable),
        )

    async def _part(self, name: str, groups: Sequence[Responses]) -> list[list[Score | Failure]]:
        if name in self._inline:
            return [[_inline(self._inline[name], text, group.prompt.label) for text in group.texts] for group in groups]
        part, pool = self._config.parts[name], self._pools[name]
        return list(await together(*(_pooled(pool, part, group) for group in groups)))

    def _total(self, results: Mapping[str, Score | Failure], group: Responses, index: int) -> Scored:
        """The weighted sum, or the first part's failure."""
        reward = 0.0
        parts: dict[str, float] = {}
        for name, result in results.items():
            if isinstance(result, Failure):
                detail = f"reward {name}, sample {group.name}/{group.indices[index]}: {result.detail}"
                return Scored(reward=None, status=result.status, part=name, reason=result.detail, detail=detail)
            reward += self._config.parts[name].weight * result.value
            parts[name] = result.value
            parts.update({f"{name}/{key}": value for key, value in result.parts.items()})
        return Scored(reward=reward, parts=parts)


def _with_rewards(group: SampleGroup, results: Sequence[Scored]) -> SampleGroup:
    left = iter(results)
    samples = (sample if sample.status is not Status.OK else _scored(sample, next(left)) for sample in group.samples)
    return replace(group, samples=tuple(samples))


def _scored(sample: Sample, result: Scored) -> Sample:
    if result.status is not Status.OK:
        return sample.failed(result.status, result.detail)
    return replace(sample, reward=result.reward, reward_parts=result.parts)


def _inline(function: Inline, text: str, label: str | None) -> Score | Failure:
    if label is None:
        return Failure(Status.REWARD_ERROR, "the prompt has no label (data.label_key)")
    try:
        return Score(function(text, label))
    except ValueError as error:
        return Failure(Status.REWARD_ERROR, str(error))


async def _pooled(pool: Pool, part: RewardPart, group: Responses) -> list[Score | Failure]:
    """One item for the whole group, or one for each text, all of them in the pool's queue at once."""
    if not group.texts:
        return []
    if isinstance(part, Custom) and part.per == "group":
        item = {**_context(group.prompt), "responses": list(group.texts)}
        result = await pool.run(item, sample=group.name, count=len(group.texts))
        return [result] * len(group.texts) if isinstance(result, Failure) else list(result)
    if isinstance(part, Math) and group.prompt.label is None:
        return [Failure(Status.REWARD_ERROR, "the prompt has no label (data.label_key)")] * len(group.texts)
    context = _context(group.prompt)

    async def one(index: int, text: str) -> Score | Failure:
        result = await pool.run({**context, "response": text}, sample=f"{group.name}/{index}", count=1)
        return result if isinstance(result, Failure) else result[0]

    return list(await together(*(one(index, text) for index, text in zip(group.indices, group.texts, strict=True))))


def _context(prompt: Prompt) -> dict[str, Any]:
    content = prompt.content
    turns = content if isinstance(content, str) else [{"role": turn.role, "content": turn.content} for turn in content]
    return {"label": prompt.label, "prompt": turns, "metadata": dict(prompt.metadata)}
