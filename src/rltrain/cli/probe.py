"""A try of the data and the rewards on a few rows, as a run would use them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rltrain.cli.checking import Checked
from rltrain.config.errors import Problem, UserError
from rltrain.config.reward import RewardConfig
from rltrain.data.prompts import PromptSet, load_prompt_set
from rltrain.data.tokenizer import Tokenizer
from rltrain.rewards.rewarder import Responses, Rewarder, Scored
from rltrain.types.sample import Prompt, Status

ROWS = 8
"""Rows that are read of each set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a reward gave for one response."""

    response: str
    result: Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    sets: Mapping[str, PromptSet]
    """The first rows, by key: `data`, `eval.sets.<name>`."""
    prompt: Prompt
    text: str
    """The first training prompt's tokens as text, special tokens included."""
    trials: Sequence[Trial]


def probe(checked: Checked) -> Probe:
    """Raises UserError with the problems of all sets, or where a reward can't be computed."""
    args = checked.args
    tokenizer = _tokenizer(args.actor.model.path)
    formats = {"data": args.data} | {
        f"eval.sets.{name}": one for name, one in (args.eval.sets if args.eval else {}).items()
    }
    sets: dict[str, PromptSet] = {}
    problems: list[Problem] = []
    if tokenizer.vocab_size > checked.spec.vocab_size:
        rule = f"its tokenizer has {tokenizer.vocab_size} ids, more than config.json's vocab_size "
        rule += f"({checked.spec.vocab_size})"
        problems.append(Problem(key="actor.model.path", rule=rule, value=str(args.actor.model.path)))
    for key, one in formats.items():
        try:
            sets[key] = load_prompt_set(one, tokenizer, where=key, limit=ROWS)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    prompts = sets["data"].prompts
    trials = asyncio.run(_score(checked, args.reward, prompts, tokenizer=tokenizer))
    for name, one in (args.eval.sets if args.eval else {}).items():
        if one.reward is not None:
            asyncio.run(_score(checked, one.reward, sets[f"eval.sets.{name}"].prompts, tokenizer=tokenizer))
    text = tokenizer.decode(prompts[0].token_ids, keep_special=True)
    return Probe(sets=sets, prompt=prompts[0], text=text, trials=trials)


def _tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.load(path)
    except UserError as error:
        raise UserError([replace(problem, key="actor.model.path") for problem in error.problems]) from error


async def _score(
    checked: Checked, config: RewardConfig, prompts: Sequence[Prompt], *, tokenizer: Tokenizer
) -> list[Trial]:
    """The label as the response to one prompt, nothing at all as the response to the next."""
    responses = [prompts[0].label or "", ""]
    rewarder = Rewarder(config, decode=tokenizer.decode, search_path=checked.args.config_path.parent)
    try:
        await rewarder.start()
        asked = [
            Responses(name=prompt.id, prompt=prompt, texts=(text,), indices=(0,))
            for prompt, text in zip([prompts[0], prompts[-1]], responses, strict=True)
        ]
        scored = [results[0] for results in await rewarder.score_texts(asked)]
    finally:
        await rewarder.close()
    failed = [result.detail for result in scored if result.status is not Status.OK]
    if failed:
        raise UserError([Problem(key="reward.parts", rule=detail) for detail in dict.fromkeys(failed)])
    return [Trial(response=text, result=result) for text, result in zip(responses, scored, strict=True)]
