"""The data and the rewards as a run would use them: every set is read, two responses are scored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rltrain.cli.checking import Checked
from rltrain.config.errors import Problem, UserError
from rltrain.config.reward import RewardConfig
from rltrain.data.prompts import LoadReport
from rltrain.data.tokenizer import Tokenizer
from rltrain.rewards.rewarder import Responses, Rewarder, Scored
from rltrain.trainer.preparation import prepare
from rltrain.trainer.resume import Resumed
from rltrain.types.sample import Prompt, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a reward gave for one response."""

    response: str
    result: Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    reports: Mapping[str, LoadReport]
    """By key: `data`, `eval.sets.<name>`."""
    prompt: Prompt
    text: str
    """The first training prompt's tokens as text, special tokens included."""
    trials: Sequence[Trial]


def probe(checked: Checked, *, resumed: Resumed | None = None) -> Probe:
    """Raises UserError with the problems of all sets, or of all rewards that can't be computed."""
    try:
        return _probe(checked, resumed)
    except UserError as error:
        raise UserError(checked.located(error.problems)) from error


def _probe(checked: Checked, resumed: Resumed | None) -> Probe:
    args = checked.args
    prepared = prepare(args)
    if resumed is not None:
        prepared.cursor.load_state_dict(dict(resumed.state.data))
    prompts, tokenizer = prepared.train_set.prompts, prepared.tokenizer
    tried = {"reward": (args.reward, prompts)}
    for name, one in (args.eval.sets if args.eval else {}).items():
        if one.reward is not None:
            tried[f"eval.sets.{name}.reward"] = (one.reward, prepared.eval_prompts[name])
    trials: dict[str, list[Trial]] = {}
    problems: list[Problem] = []
    for key, (config, asked) in tried.items():
        try:
            with _unlogged():
                trials[key] = asyncio.run(_score(checked, config, asked, tokenizer=tokenizer, key=key))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    evaluations = {f"eval.sets.{name}": one.report for name, one in prepared.eval_sets.items()}
    text = tokenizer.decode(prompts[0].token_ids, keep_special=True)
    reports = {"data": prepared.train_set.report, **evaluations}
    return Probe(reports=reports, prompt=prompts[0], text=text, trials=trials["reward"])


@contextmanager
def _unlogged() -> Generator[None]:
    """A run logs each failed sample; here they become problems."""
    logger, handler = logging.getLogger("rltrain.rewards"), logging.NullHandler()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


async def _score(
    checked: Checked, config: RewardConfig, prompts: Sequence[Prompt], *, tokenizer: Tokenizer, key: str
) -> list[Trial]:
    """The label as the response to one prompt, nothing at all as the response to the next."""
    responses = [prompts[0].label or "", ""]
    one_worker = config.model_copy(update={"workers": 1})  # enough for two responses
    rewarder = Rewarder(one_worker, decode=tokenizer.decode, search_path=checked.args.config_path.parent)
    try:
        await rewarder.start()
        tried = [
            Responses(name=prompt.id, prompt=prompt, texts=(text,), indices=(0,))
            for prompt, text in zip([prompts[0], prompts[-1]], responses, strict=True)
        ]
        scored = [results[0] for results in await rewarder.score_texts(tried)]
    except UserError as error:  # a function that can't be loaded
        moved = [replace(problem, key=f"{key}{problem.key.removeprefix('reward')}") for problem in error.problems]
        raise UserError(moved) from error
    finally:
        await rewarder.close()
    problems = {
        (result.part, result.reason): Problem(key=f"{key}.parts.{result.part}", rule=f"{asked.name}: {result.reason}")
        for asked, result in reversed(list(zip(tried, scored, strict=True)))
        if result.status is not Status.OK
    }
    if problems:
        raise UserError(list(problems.values()))
    return [Trial(response=text, result=result) for text, result in zip(responses, scored, strict=True)]
