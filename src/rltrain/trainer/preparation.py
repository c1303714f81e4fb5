"""What is read and checked on the driver before anything starts: the model's facts, the tokenizer, prompts, rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rltrain.config.errors import Problem, UserError
from rltrain.config.namespace import Args
from rltrain.config.rollout import MOST_SAMPLES_PER_STEP
from rltrain.data.cursor import PromptCursor
from rltrain.data.prompts import PromptSet, load_prompt_set
from rltrain.data.tokenizer import Tokenizer
from rltrain.rewards.labels import label_check
from rltrain.telemetry.wandb_check import check_wandb
from rltrain.types.model_spec import ModelSpec
from rltrain.types.sample import Prompt

MODEL = "actor.model.path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    spec: ModelSpec
    tokenizer: Tokenizer
    cursor: PromptCursor
    train_set: PromptSet
    eval_sets: Mapping[str, PromptSet]

    @property
    def eval_prompts(self) -> Mapping[str, tuple[Prompt, ...]]:
        """By name of the evaluation set."""
        return {name: prompt_set.prompts for name, prompt_set in self.eval_sets.items()}


def prepare(args: Args) -> Prepared:
    """Raises UserError with whatever a user can mend, of all sets at once."""
    check_wandb(args.telemetry.wandb)
    spec, tokenizer = _model(args.actor.model.path)
    problems = [*_vocabulary(tokenizer, spec)]
    train_set, cursor = _training(args, tokenizer, problems)
    eval_sets = _evaluation(args, tokenizer, problems)
    if problems or train_set is None or cursor is None:
        raise UserError(problems)
    return Prepared(spec=spec, tokenizer=tokenizer, cursor=cursor, train_set=train_set, eval_sets=eval_sets)


def _model(path: Path) -> tuple[ModelSpec, Tokenizer]:
    try:
        return ModelSpec.read(path), Tokenizer.load(path)
    except UserError as error:
        raise UserError([replace(problem, key=MODEL) for problem in error.problems]) from error


def _training(
    args: Args, tokenizer: Tokenizer, problems: list[Problem]
) -> tuple[PromptSet | None, PromptCursor | None]:
    try:
        train_set = load_prompt_set(args.data, tokenizer, where="data", label_check=label_check(args.reward))
        cursor = PromptCursor(train_set, args.data)
        cursor.check(args.run.steps, args.rollout.prompts_per_step)
    except UserError as error:
        problems += error.problems
        return None, None
    return train_set, cursor


def _evaluation(args: Args, tokenizer: Tokenizer, problems: list[Problem]) -> dict[str, PromptSet]:
    found: dict[str, PromptSet] = {}
    for name, config in (args.eval.sets if args.eval is not None else {}).items():
        key = f"eval.sets.{name}"
        try:
            checked = label_check(config.reward or args.reward)
            found[name] = load_prompt_set(config, tokenizer, where=key, limit=config.limit, label_check=checked)
        except UserError as error:
            problems += error.problems
            continue
        count = len(found[name].prompts)
        if count * config.samples_per_prompt > MOST_SAMPLES_PER_STEP:
            rule = f"{count} prompts x {config.samples_per_prompt} samples are more than {MOST_SAMPLES_PER_STEP}"
            problems.append(Problem(key=f"{key}.samples_per_prompt", rule=rule, hint=f"fewer, or set {key}.limit"))
    return found


def _vocabulary(tokenizer: Tokenizer, spec: ModelSpec) -> Iterator[Problem]:
    if tokenizer.vocab_size > spec.vocab_size:
        rule = f"its tokenizer has {tokenizer.vocab_size} ids, more than config.json's vocab_size ({spec.vocab_size})"
        yield Problem(key=MODEL, rule=rule, value=str(spec.path))


def context_length(args: Args, spec: ModelSpec) -> int:
    """Tokens of prompt and response that an engine makes room for."""
    if args.rollout.context_length is not None:
        return args.rollout.context_length
    needs = [args.data.max_prompt_tokens + args.rollout.max_tokens]
    if args.eval is not None:
        needs += [s.max_prompt_tokens + s.sampling.max_tokens for s in args.eval.sets.values()]
    return min(spec.max_positions, max(needs))


def max_sequences(args: Args, prepared: Prepared) -> int:
    """Most responses that one engine is asked for at once."""
    needs = [args.rollout.prompts_per_step * args.rollout.samples_per_prompt]
    if args.eval is not None:
        needs += [len(prepared.eval_prompts[name]) * s.samples_per_prompt for name, s in args.eval.sets.items()]
    return max(1, -(-max(needs) // args.rollout.engines))


def kv_cache_bytes(args: Args, prepared: Prepared) -> int | None:
    """`rollout.kv_cache_bytes`, or on a CPU enough for all of a step's responses, within 64 MiB and 1 GiB."""
    if args.rollout.kv_cache_bytes is not None:
        return args.rollout.kv_cache_bytes
    spec = prepared.spec
    element = 4 if args.actor.model.dtype == "float32" else 2
    whole = spec.cache_numbers * element * context_length(args, spec) * max_sequences(args, prepared)
    return min(max(whole, 64 * 2**20), 2**30)
