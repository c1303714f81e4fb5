"""Workers on one or two CPU processes, tiny models of each family, and batches for them."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rltrain.backends.megatron.setup import TrainSetup
from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import ModelConfig, OptimizerConfig, RoleConfig
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.data.plan import make_plan
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan

VOCABULARY = 96


def save_model(path: Path, family: str, *, tied: bool, **changes: Any) -> Any:
    """A transformers model of random weights, norms and biases included; returns it in fp32."""
    import transformers

    fields = {
        "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "tie_word_embeddings": tied, "initializer_range": 0.1,
    }  # fmt: skip
    if family == "Qwen3":
        fields["head_dim"] = 16
    config = getattr(transformers, f"{family}Config")(**(fields | changes))
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(path)
    return model


def train_setup(path: Path, **changes: Any) -> TrainSetup:
    rate = changes.pop("learning_rate", 1e-2)
    model = ModelConfig(path=path, dtype=changes.pop("dtype", "float32"), init=changes.pop("init", "pretrained"))
    fields: dict[str, Any] = {
        "role": RoleConfig(model=model, optimizer=OptimizerConfig(learning_rate=rate)),
        "algorithm": AlgorithmConfig(),
        "weight_sync": WeightSyncConfig(),
        "temperature": 1.0,
        "seed": 1,
        "total_updates": 10,
        "deterministic": False,
        "device": "cpu",
        "needs_reference": False,
        "reference_path": None,
    }
    return TrainSetup(**(fields | changes))


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def make_batch(num_samples: int = 16, *, seed: int = 0) -> RolloutBatch:
    generator = np.random.default_rng(seed)
    prompts, responses = generator.integers(1, 20, num_samples), generator.integers(1, 30, num_samples)

    def column(lengths: Any, draw: Any, dtype: Any) -> Ragged[Any]:
        return Ragged.of([np.asarray(draw(length), dtype) for length in lengths], dtype)

    def ids(length: int) -> Any:
        return generator.integers(0, VOCABULARY, length)

    return RolloutBatch(
        step=0,
        version=0,
        prompt_ids=column(prompts, ids, np.int32),
        response_ids=column(responses, ids, np.int32),
        loss_mask=column(responses, lambda length: generator.random(length) < 0.8, np.bool_),
        rollout_logprobs=column(responses, lambda length: -4 + generator.normal(size=length), np.float32),
        advantages=column(responses, lambda length: generator.normal(size=length), np.float32),
        group_B=np.arange(num_samples, dtype=np.int32) // 4,
    )


def plan_of(batch: RolloutBatch, *, cap: int, ranks: int = 1, per: int = 4) -> StepPlan:
    return make_plan(
        batch.total_lengths_B, batch.loss_mask.sums(), batch.group_B,
        prompts_per_update=per, ranks=ranks, tokens_per_micro_batch=cap,
    )  # fmt: skip


def run_ranks(setups: list[TrainSetup], calls: list[list[tuple[str, tuple[Any, ...]]]]) -> list[list[Any]]:
    """Runs each rank's calls in a process of its own; the results of every call and, last, all of the weights."""
    context = multiprocessing.get_context("spawn")
    port, queue = free_port(), context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, len(setups), port, setup, calls[rank], queue))
        for rank, setup in enumerate(setups)
    ]
    for process in ranks:
        process.start()
    found = dict(queue.get(timeout=180) for _ in ranks)
    for process in ranks:
        process.join()
    return [found[rank] for rank in range(len(ranks))]


def _rank(rank: int, world: int, port: int, setup: TrainSetup, calls: Any, queue: Any) -> None:
    from rltrain.backends.megatron.worker import TrainWorker

    worker = TrainWorker(setup)
    worker.join(rank=rank, world_size=world, address="127.0.0.1", port=port)
    results = [getattr(worker, method)(*arguments) for method, arguments in calls]
    queue.put((rank, [*results, {name: tensor.numpy().copy() for name, tensor in worker._tensors()}]))
    worker.close()
