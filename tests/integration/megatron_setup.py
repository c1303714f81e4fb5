"""Workers on one or two CPU processes, tiny models of each family, and batches for them."""

from __future__ import annotations

import multiprocessing
import socket
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rltrain.backends.megatron.setup import TrainSetup
from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import (
    MegatronOverrides,
    ModelConfig,
    NoRecompute,
    OptimizerConfig,
    ParallelConfig,
    RoleConfig,
)
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.data.plan import SampleSizes, Schedule, make_plan
from rltrain.types.batch import OptimizerStep, Ragged, RolloutBatch, StepPlan

VOCABULARY = 96
RANK_TIMEOUT_S = 180
Call = tuple[Any, ...]
"""A method's name, or a function that gets the worker, and the arguments."""


def save_model(path: Path, family: str, *, tied: bool, seed: int = 0, shard_size: str = "1GB", **changes: Any) -> Any:
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
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(path, max_shard_size=shard_size)
    return model


def train_setup(path: Path, **changes: Any) -> TrainSetup:
    model = ModelConfig(path=path, dtype=changes.pop("dtype", "float32"), init=changes.pop("init", "pretrained"))
    names = [name for name in changes if name in OptimizerConfig.model_fields]
    optimizer = OptimizerConfig(**({"learning_rate": 1e-2} | {name: changes.pop(name) for name in names}))
    megatron = MegatronOverrides(**changes.pop("megatron", {}))
    parallel = ParallelConfig(**changes.pop("parallel", {}))
    role_changes = {"recompute": changes.pop("recompute", NoRecompute())} | changes.pop("role_changes", {})
    fields: dict[str, Any] = {
        "role": RoleConfig(model=model, parallel=parallel, optimizer=optimizer, megatron=megatron, **role_changes),
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
    """Groups of four with one prompt each, but for the second one's, which are four."""
    generator = np.random.default_rng(seed)
    prompts, responses = generator.integers(1, 20, num_samples), generator.integers(1, 30, num_samples)

    def column(lengths: Any, draw: Any, dtype: Any) -> Ragged[Any]:
        return Ragged.of([np.asarray(draw(length), dtype) for length in lengths], dtype)

    def ids(length: int) -> Any:
        return generator.integers(0, VOCABULARY, length)

    own = column(prompts, ids, np.int32)
    shared = [number if number // 4 == 1 else number - number % 4 for number in range(num_samples)]
    return RolloutBatch(
        step=0,
        version=0,
        prompt_ids=Ragged[np.int32].of([own[number] for number in shared], np.int32),
        response_ids=column(responses, ids, np.int32),
        loss_mask=column(responses, lambda length: generator.random(length) < 0.8, np.bool_),
        rollout_logprobs=column(responses, lambda length: -4 + generator.normal(size=length), np.float32),
        advantages=column(responses, lambda length: generator.normal(size=length), np.float32),
        group_B=np.arange(num_samples, dtype=np.int32) // 4,
    )


def plan_of(
    batch: RolloutBatch, *, cap: int, ranks: int = 1, per: int = 4, share_prompts: bool = True, **more: Any
) -> StepPlan:
    schedule = Schedule(prompts_per_update=per, ranks=ranks, tokens_per_micro_batch=cap, **more)
    return make_plan(SampleSizes.of(batch, share_prompts=share_prompts), schedule)


def plan_by_count(batch: RolloutBatch, count: int, *, ranks: int = 1) -> StepPlan:
    """One optimizer step over all samples, dealt over the ranks, `count` of them in a micro-batch."""
    numbers = np.flatnonzero(batch.loss_mask.sums() > 0).tolist()
    shares = [numbers[rank::ranks] for rank in range(ranks)]
    bins = [[tuple(share[start : start + count]) for start in range(0, len(share), count)] for share in shares]
    most = max(len(rank) for rank in bins)
    micro_batches = tuple(tuple(rank) + ((),) * (most - len(rank)) for rank in bins)
    return StepPlan((OptimizerStep(micro_batches, int(batch.loss_mask.values.sum())),))


def new_worker(setup: TrainSetup, *, rank: int = 0, ranks: int = 1, port: int | None = None) -> Any:
    """A worker that has joined; a process has one at a time."""
    from rltrain.backends.megatron.worker import TrainWorker

    worker = TrainWorker(setup)
    try:
        worker.join(rank=rank, world_size=ranks, address="127.0.0.1", port=port or free_port())
    except BaseException:
        worker.close()
        raise
    return worker


@contextmanager
def worker(path: Path, **changes: Any) -> Generator[Any]:
    """The only rank, in this process."""
    made = new_worker(train_setup(path, **changes))
    try:
        yield made
    finally:
        made.close()


def weights(worker: Any) -> dict[str, torch.Tensor]:
    """By Hugging Face names."""
    return {name: tensor.clone() for name, tensor in worker._tensors()}


def gradients(worker: Any) -> dict[str, torch.Tensor]:
    """Those of the last update, by Hugging Face names; as they were before clipping only where nothing clips."""
    from rltrain.backends.megatron.convert.gather import hf_tensors

    found = hf_tensors(worker._parts.chunks, worker._spec, value=lambda parameter: parameter.main_grad)
    return {name: gradient.clone() for name, gradient in found}


def train(rank: int, ranks: int, port: int, setup: TrainSetup, calls: Sequence[Call]) -> list[Any]:
    """A worker's life in a process of `RankProcesses`: the results of the calls; a function gets the worker."""
    worker = new_worker(setup, rank=rank, ranks=ranks, port=port)
    try:
        return [
            getattr(worker, call)(*arguments) if isinstance(call, str) else call(worker, *arguments)
            for call, *arguments in calls
        ]
    finally:
        worker.close()


class RankProcesses:
    """Processes that stay, so that one import of Megatron serves many process groups."""

    def __init__(self, ranks: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(ranks)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [context.Process(target=_serve, args=(theirs,), daemon=True) for _, theirs in pipes]
        for process in self._processes:
            process.start()

    def run(self, function: Callable[..., Any], *arguments: Any, ranks: int | None = None) -> list[Any]:
        """`function(rank, ranks, port, *arguments)` on the first `ranks` or all; the results by rank.

        Raises what a rank raised.
        """
        port, pipes = free_port(), self._pipes[:ranks]
        for rank, pipe in enumerate(pipes):
            pipe.send((function, (rank, len(pipes), port, *arguments)))
        results: list[Any] = []
        for pipe in pipes:
            assert pipe.poll(RANK_TIMEOUT_S), f"a rank gave no result within {RANK_TIMEOUT_S} s"
            results.append(pipe.recv())
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _serve(pipe: Any) -> None:
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send(function(*arguments))
        except Exception as error:  # noqa: BLE001 - whatever it is, `run` raises it
            traceback.print_exc()
            pipe.send(error)
