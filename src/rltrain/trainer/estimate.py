"""What follows from a config before anything runs: the sizes of a step and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltrain.config.algorithm import ReferenceKL
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.trainer.preparation import context_length
from rltrain.types.model_spec import ModelSpec

WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    device: str
    num_gpus: int
    num_trainers: int
    num_engines: int
    tensor_parallel: int
    prompts_per_step: int
    samples_per_step: int
    tokens_per_step: int
    """At most: every prompt and response at its longest."""
    updates_per_step: int
    updates: int
    """Optimizer steps of the whole run."""
    samples_per_rank: int
    """Most samples of an optimizer step that one copy of the model gets."""
    micro_batch_tokens: int
    micro_batches: int
    """Most forward and backward passes of a trainer in an optimizer step."""
    num_parameters: int
    rank_memory: Mapping[str, int]
    """Bytes on each trainer by what they hold; activations come on top."""
    context_length: int
    cache_bytes_per_token: int
    cache_bytes: int | None
    """KV cache of an engine; None where vLLM takes its share of a GPU."""
    export_bytes: int
    saved_bytes: int
    """Of a saved step."""


def estimate(args: Args, spec: ModelSpec, machine: Machine) -> Estimate:
    """From the config and the model's facts alone."""
    rollout, parallel = args.rollout, args.actor.parallel
    longest = args.data.max_prompt_tokens + rollout.max_tokens
    samples = rollout.prompts_per_step * rollout.samples_per_prompt
    update_prompts = args.algorithm.prompts_per_update or rollout.prompts_per_step
    per_step = rollout.prompts_per_step // update_prompts
    per_rank = -(-update_prompts * rollout.samples_per_prompt // parallel.data)
    width = WIDTHS[args.actor.model.dtype]
    per_token = spec.cache_numbers * width
    context = context_length(args, spec)
    return Estimate(
        device=machine.device,
        num_gpus=machine.num_gpus,
        num_trainers=parallel.world_size,
        num_engines=rollout.engines,
        tensor_parallel=rollout.tensor_parallel,
        prompts_per_step=rollout.prompts_per_step,
        samples_per_step=samples,
        tokens_per_step=samples * longest,
        updates_per_step=per_step,
        updates=args.run.steps * per_step,
        samples_per_rank=per_rank,
        micro_batch_tokens=args.actor.tokens_per_micro_batch,
        micro_batches=-(-per_rank // max(1, args.actor.tokens_per_micro_batch // longest)),
        num_parameters=spec.num_parameters,
        rank_memory=_rank_memory(args, spec.num_parameters),
        context_length=context,
        cache_bytes_per_token=per_token,
        cache_bytes=_cache_bytes(args, machine, whole=per_token * context * -(-samples // rollout.engines)),
        export_bytes=spec.num_parameters * width,
        saved_bytes=saved_bytes(args, spec),
    )


def saved_bytes(args: Args, spec: ModelSpec) -> int:
    """Of a saved step at most: what is frozen has no moments and may be in half precision."""
    return spec.num_parameters * (12 if args.checkpoint.optimizer else 4)


def _rank_memory(args: Args, num_parameters: int) -> dict[str, int]:
    width = WIDTHS[args.actor.model.dtype]
    parallel = args.actor.parallel
    num_parameters = -(-num_parameters // (parallel.tensor * parallel.pipeline))
    copies = parallel.data * parallel.context if parallel.shard_optimizer else 1
    masters = 4 * num_parameters if args.actor.model.dtype != "float32" else 0
    moments = 0 if args.actor.optimizer.offload else 8 * num_parameters
    found = {
        "weights": width * num_parameters,
        "gradients (float32)": 4 * num_parameters,
        "optimizer": -(-(masters + moments) // copies),
    }
    if isinstance(args.algorithm.kl, ReferenceKL):
        found["reference"] = width * num_parameters
    return found


def _cache_bytes(args: Args, machine: Machine, *, whole: int) -> int | None:
    """As `preparation.kv_cache_bytes`, without evaluation, whose prompts aren't counted here."""
    if args.rollout.kv_cache_bytes is not None:
        return args.rollout.kv_cache_bytes
    return None if machine.device == "cuda" else min(max(whole, 64 * 2**20), 2**30)
