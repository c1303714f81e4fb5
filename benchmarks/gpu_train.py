"""Tokens a second and MFU of a training step and of a log-prob pass on one GPU, without engines and Ray.

Usage: python benchmarks/gpu_train.py MODEL_DIRECTORY [--length 2048] [--micro 16384] [--micros 2] [--profile DIRECTORY]
Random weights in bfloat16; one JSON line. MFU is over the matrix-product rate measured in the same process (8192^3).
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rltrain.backends.megatron.setup import TrainSetup
from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import ModelConfig, OptimizerConfig, RoleConfig
from rltrain.config.profile import ProfileConfig
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.data.plan import SampleSizes, Schedule, make_plan
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan
from rltrain.types.model_spec import ModelSpec

PROMPT = 8
PROFILED = 99


def ceiling() -> float:
    """FLOP/s of a bf16 product of 8192 x 8192 matrices."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / timed(lambda: left @ right, rounds=20)


def timed(call: Callable[[], object], *, rounds: int) -> float:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / rounds


def make_batch(spec: ModelSpec, *, num_samples: int, length: int, step: int) -> RolloutBatch:
    drawn = np.random.default_rng(step)
    limit = min(spec.vocab_size, 2**15)
    prompts = [drawn.integers(3, limit, PROMPT).astype(np.int32) for _ in range(num_samples)]
    responses = [drawn.integers(3, limit, length - PROMPT).astype(np.int32) for _ in range(num_samples)]
    size = [len(response) for response in responses]
    return RolloutBatch(
        step=step,
        version=1,
        prompt_ids=Ragged[np.int32].of(prompts, np.int32),
        response_ids=Ragged[np.int32].of(responses, np.int32),
        loss_mask=Ragged[np.bool_].of([np.ones(n, np.bool_) for n in size], np.bool_),
        rollout_logprobs=Ragged[np.float32].of([np.full(n, -10.0, np.float32) for n in size], np.float32),
        advantages=Ragged[np.float32].of([drawn.normal(size=n).astype(np.float32) for n in size], np.float32),
        group_B=np.arange(num_samples, dtype=np.int32),
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from rltrain.backends.megatron.worker import TrainWorker

    path: Path = arguments.model
    spec = ModelSpec.read(path)
    peak = ceiling()
    role = RoleConfig(
        model=ModelConfig(path=path, init="random", dtype="bfloat16"),
        optimizer=OptimizerConfig(learning_rate=1e-6),
        tokens_per_micro_batch=arguments.micro,
    )
    profile = ProfileConfig(steps=(PROFILED,)) if arguments.profile else None
    worker = TrainWorker(
        TrainSetup(
            role=role, algorithm=AlgorithmConfig(), weight_sync=WeightSyncConfig(), temperature=1.0, seed=1,
            total_updates=100, deterministic=False, device="cuda", needs_reference=False, reference_path=None,
            profile=profile, profile_directory=arguments.profile or Path("profile"),
        )
    )  # fmt: skip
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    worker.join(rank=0, world_size=1, address="127.0.0.1", port=port)
    count = arguments.micro // arguments.length * arguments.micros

    def work(step: int) -> tuple[RolloutBatch, StepPlan]:
        batch = make_batch(spec, num_samples=count, length=arguments.length, step=step)
        schedule = Schedule(prompts_per_update=count, ranks=1, tokens_per_micro_batch=arguments.micro)
        return batch, make_plan(SampleSizes.of(batch, share_prompts=True), schedule)

    batch, plan = work(1)
    update_s = timed(lambda: worker.update(batch, plan), rounds=5)
    peak_bytes = torch.cuda.max_memory_allocated()
    logprobs_s = timed(lambda: worker.logprobs(batch, plan, model="actor"), rounds=5)
    if arguments.profile:
        profiled, plan_ = work(PROFILED)
        worker.update(profiled, plan_)
        worker.logprobs(profiled, plan_, model="actor")
    tokens = count * arguments.length
    causal = 2 * spec.num_layers * arguments.length * spec.num_heads * spec.head_dim
    flops = tokens * (2 * spec.num_parameters + causal)  # of a forward pass; a backward pass has twice as many
    worker.close()
    return {
        "model": path.name,
        "micro_batches": f"{arguments.micros} x {arguments.micro // arguments.length} x {arguments.length}",
        "ceiling_tflops": round(peak / 1e12),
        "update_s": round(update_s, 3),
        "update_tokens_per_s": round(tokens / update_s),
        "update_mfu": round(3 * flops / update_s / peak, 3),
        "update_floor_s": round(3 * flops / peak, 3),
        "logprobs_s": round(logprobs_s, 3),
        "logprobs_tokens_per_s": round(tokens / logprobs_s),
        "logprobs_mfu": round(flops / logprobs_s / peak, 3),
        "peak_gib": round(peak_bytes / 2**30, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--micro", type=int, default=16384)
    parser.add_argument("--micros", type=int, default=2)
    parser.add_argument("--profile", type=Path)
    print(json.dumps(measure(parser.parse_args())))
