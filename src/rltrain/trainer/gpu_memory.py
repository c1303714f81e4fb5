"""How trainer and engine share a GPU: what each holds, and what is left for the KV cache. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltrain.config.errors import Problem
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.trainer.estimate import WIDTHS, estimate
from rltrain.types.model_spec import ModelSpec

GIB = 2**30
RESERVED = 0.02
"""Share of the GPU that CUDA doesn't give out, or that fragments take."""
CONTEXT_BYTES = GIB
"""CUDA's own, the libraries' work spaces and NCCL's buffers, in each process."""
ENGINE_BYTES = 2 * GIB
"""CUDA graphs and activations of an engine, logits apart."""
LOGIT_COPIES = 5
"""fp32 copies of its sequences' logits that vLLM's sampler holds at once."""
CHUNK_COPIES = 4
"""Copies of a chunk of logits that the trainer holds at once."""
CHUNK_BYTES = 256 * 2**20
"""As `backends.megatron.logprobs`."""
SLACK = 1.1
"""On activations, for what the allocator splits and what lives only for a moment."""
MOST_SEQUENCES = 1024
"""As `backends.vllm.arguments` on a GPU."""
BLOCK = 16
"""Tokens of a block of the KV cache: a sequence takes whole ones."""
BUCKET_BYTES = 2 * GIB
"""`weight_sync.bucket_bytes` where trainer and engine share a GPU and it isn't given."""
LEAST_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    total_bytes: int
    """Of the GPU, without what can't be had."""
    trainer: Mapping[str, int]
    """Bytes by what they hold, all the time."""
    activations_bytes: int
    """Of the trainer, while it works."""
    engine: Mapping[str, int]
    """Bytes of one engine by what they hold, KV cache apart."""
    engines_per_gpu: int
    wanted_cache_bytes: int
    """For all sequences that one engine generates at once."""
    least_cache_bytes: int
    """For one sequence."""
    cache_bytes: int
    """What an engine's KV cache gets; too little where it is less than the least."""
    sleeps: bool
    """The engine gives its memory up while the trainer works."""

    @property
    def engine_share(self) -> float:
        """Of the GPU's memory, for weights, cache and what else an engine holds."""
        return max(0.01, min(0.9, (sum(self.engine.values()) + self.cache_bytes) / self.total_bytes))

    @property
    def fits(self) -> bool:
        engine = CONTEXT_BYTES if self.sleeps else sum(self.engine.values()) + self.cache_bytes
        works = sum(self.trainer.values()) + self.activations_bytes + self.engines_per_gpu * engine
        return self.cache_bytes >= self.least_cache_bytes and works <= self.total_bytes


def shares_gpus(args: Args, machine: Machine) -> bool:
    """Whether trainers and engines take turns on the same GPUs."""
    needed = args.actor.parallel.world_size + args.rollout.engines * args.rollout.tensor_parallel
    return 0 < machine.num_gpus < needed


def plan_gpu(args: Args, spec: ModelSpec, machine: Machine, *, max_sequences: int | None = None) -> GpuPlan | None:
    """None where no GPU is shared or its memory isn't known; vLLM then takes what it finds.

    `max_sequences` is the most that an engine is asked for at once, a step's samples when left out.
    """
    if machine.gpu_memory_bytes is None or not shares_gpus(args, machine):
        return None
    found = estimate(args, spec, machine)
    width = WIDTHS[args.actor.model.dtype]
    total = int(machine.gpu_memory_bytes * (1 - RESERVED))
    bucket = args.weight_sync.bucket_bytes or BUCKET_BYTES
    weights = width * spec.num_parameters
    trainer = {
        **found.rank_memory,
        "weight sync": weights if weights <= bucket else 2 * bucket,
        "CUDA": CONTEXT_BYTES,
    }
    sequences = min(max_sequences or -(-found.samples_per_step // found.num_engines), MOST_SEQUENCES)
    split = args.rollout.tensor_parallel
    engine = {
        "weights": weights // split,
        "activations and graphs": ENGINE_BYTES + LOGIT_COPIES * 4 * sequences * spec.vocab_size,
        "CUDA": CONTEXT_BYTES,
    }
    activations = activation_bytes(spec, tokens=args.actor.tokens_per_micro_batch, width=width)
    per_sequence = found.cache_bytes_per_token * (-(-found.context_length // BLOCK) + 1) * BLOCK // split
    wanted = max(LEAST_CACHE_BYTES, per_sequence * sequences)
    count = -(-args.rollout.engines * split // machine.num_gpus)
    awake = total - sum(trainer.values()) - count * sum(engine.values())
    beside = awake - activations
    sleeps = {"always": True, "never": False, "auto": beside < count * wanted}[args.rollout.sleep]
    room = (awake if sleeps else beside) // count
    return GpuPlan(
        total_bytes=total,
        trainer=trainer,
        activations_bytes=activations,
        engine=engine,
        engines_per_gpu=count,
        wanted_cache_bytes=wanted,
        least_cache_bytes=per_sequence,
        cache_bytes=args.rollout.kv_cache_bytes or min(wanted, room),
        sleeps=sleeps,
    )


def activation_bytes(spec: ModelSpec, *, tokens: int, width: int) -> int:
    """Of a forward and backward pass over a micro-batch, nothing recomputed.

    A layer keeps for each token the inputs of its products, norms, turns and of the activation: 4 of the hidden size,
    4 of the queries', 5 of the keys', 3 of the values' and 3 of the MLP's inner size. The output layer has chunks of
    logits and its weight's gradient in fp32.
    """
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = 4 * spec.hidden_size + 4 * query + 8 * key + 3 * spec.intermediate_size
    head = CHUNK_COPIES * CHUNK_BYTES + 2 * 4 * spec.vocab_size * spec.hidden_size
    return int(SLACK * width * tokens * spec.num_layers * layer) + head


def memory_problems(args: Args, spec: ModelSpec, machine: Machine) -> list[Problem]:
    """One, with the numbers, where a shared GPU can't hold what trainer and engine need."""
    plan = plan_gpu(args, spec, machine)
    if plan is None or plan.fits:
        return []
    trainer = ", ".join(f"{what} {_gib(size)}" for what, size in plan.trainer.items())
    engine = ", ".join(f"{what} {_gib(size)}" for what, size in plan.engine.items())
    asleep = " (asleep meanwhile)" if plan.sleeps else ""
    rule = (
        f"{spec.num_parameters:,} parameters don't fit on a GPU of {_gib(plan.total_bytes)} that trainer and engine "
        f"share. Trainer: {trainer}, activations of {args.actor.tokens_per_micro_batch:,} tokens "
        f"{_gib(plan.activations_bytes)}. {plan.engines_per_gpu} x engine{asleep}: {engine}, KV cache "
        f"{_gib(max(plan.cache_bytes, plan.least_cache_bytes))}"
    )
    hint = "a smaller model, actor.tokens_per_micro_batch or rollout.kv_cache_bytes, rollout.sleep: always"
    return [Problem(key="actor.model.path", rule=rule, value=str(spec.path), hint=hint)]


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
