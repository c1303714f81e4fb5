"""What is read and checked on the driver before anything starts: the model's facts, the tokenizer, prompts, rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltrain.config.evaluation import EvalSet
from rltrain.config.namespace import Args
from rltrain.data.cursor import PromptCursor
from rltrain.data.prompts import PromptSet, load_prompt_set
from rltrain.data.tokenizer import Tokenizer
from rltrain.telemetry.wandb_sink import check_wandb
from rltrain.types.model_spec import ModelSpec
from rltrain.types.sample import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    spec: ModelSpec
    tokenizer: Tokenizer
    cursor: PromptCursor
    train_set: PromptSet
    eval_prompts: Mapping[str, tuple[Prompt, ...]]
    """By name of the evaluation set."""


def prepare(args: Args) -> Prepared:
    """Raises UserError for whatever a user can mend."""
    check_wandb(args.telemetry.wandb)
    spec = ModelSpec.read(args.actor.model.path)
    tokenizer = Tokenizer.load(args.actor.model.path)
    train_set = load_prompt_set(args.data, tokenizer, where="data")
    cursor = PromptCursor(train_set, args.data)
    cursor.check(args.run.steps, args.rollout.prompts_per_step)
    sets = args.eval.sets if args.eval is not None else {}
    eval_prompts = {name: _eval_prompts(name, config, tokenizer) for name, config in sets.items()}
    return Prepared(spec=spec, tokenizer=tokenizer, cursor=cursor, train_set=train_set, eval_prompts=eval_prompts)


def _eval_prompts(name: str, config: EvalSet, tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    return load_prompt_set(config, tokenizer, where=f"eval.sets.{name}", limit=config.limit).prompts


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
    per_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * element
    whole = per_token * context_length(args, spec) * max_sequences(args, prepared)
    return min(max(whole, 64 * 2**20), 2**30)
