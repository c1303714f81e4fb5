"""The trainer on a GPU: packed sequences don't see one another, and fp32 agrees with transformers."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rltrain.backends.megatron.setup import TrainSetup
from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import ModelConfig, OptimizerConfig, RoleConfig
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.types.batch import Ragged, RolloutBatch

pytestmark = pytest.mark.gpu

LENGTHS = (5, 17, 64)
VOCABULARY = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A two-layer Qwen3 in fp32 on the GPU; its directory is its `path`."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=512, tie_word_embeddings=True,
        initializer_range=0.1,
    )  # fmt: skip
    found = Qwen3ForCausalLM(config).float().eval()
    found.path = tmp_path_factory.mktemp("qwen3")
    found.save_pretrained(found.path)
    return found.cuda()


@contextmanager
def cuda_worker(path: Path, dtype: str) -> Generator[Any]:
    from rltrain.backends.megatron.worker import TrainWorker

    role = RoleConfig(model=ModelConfig(path=path, dtype=dtype), optimizer=OptimizerConfig(learning_rate=1e-3))
    worker = TrainWorker(
        TrainSetup(
            role=role, algorithm=AlgorithmConfig(), weight_sync=WeightSyncConfig(), temperature=1.0, seed=1,
            total_updates=10, deterministic=False, device="cuda", needs_reference=False, reference_path=None,
        )
    )  # fmt: skip
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    try:
        worker.join(rank=0, world_size=1, address="127.0.0.1", port=port)
        yield worker
    finally:
        worker.close()


def sequences(seed: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed)
    return [drawn.integers(0, VOCABULARY, length).astype(np.int32) for length in LENGTHS]


def scores(worker: Any, found: list[np.ndarray]) -> np.ndarray:
    """Log-probs of every token but each sequence's first, all of them packed into one micro-batch."""
    from rltrain.backends.megatron.micro_batch import MicroBatch
    from rltrain.backends.megatron.passes import logprobs

    def column(rows: list[np.ndarray], dtype: type) -> Ragged[Any]:
        return Ragged.of([row.astype(dtype) for row in rows], dtype)

    responses = [ids[1:] for ids in found]
    zeros = column([0 * ids for ids in responses], np.float32)
    batch = RolloutBatch(
        step=0, version=0, prompt_ids=column([ids[:1] for ids in found], np.int32),
        response_ids=column(responses, np.int32), loss_mask=column(responses, np.bool_), rollout_logprobs=zeros,
        advantages=zeros, group_B=np.arange(len(found), dtype=np.int32),
    )  # fmt: skip
    return logprobs(worker._parts, [MicroBatch(batch, range(len(found)), worker._parts)], temperature=1.0)[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_lgp_06_packed_log_probs_are_those_of_each_sequence_alone(model: Any, dtype: str, tolerance: float) -> None:
    first, second = sequences(0), sequences(1)
    with cuda_worker(model.path, dtype) as worker:
        together = scores(worker, first)
        alone = np.concatenate([scores(worker, [ids]) for ids in first])
        assert np.abs(together - alone).max() < tolerance
        others = scores(worker, [second[0], *first[1:]])
        assert np.array_equal(others[LENGTHS[0] - 1 :], together[LENGTHS[0] - 1 :])
        assert not np.array_equal(others[: LENGTHS[0] - 1], together[: LENGTHS[0] - 1])


def test_fp32_log_probs_are_those_of_transformers(model: Any) -> None:
    """TF32 is off on both sides, so 2e-5 leaves room for the order of sums alone."""
    ids = sequences(3)[2]
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None].long().cuda()).logits[0, :-1].float()
    expected = logits.log_softmax(-1).gather(-1, torch.from_numpy(ids)[1:, None].long().cuda())[:, 0].cpu().numpy()
    with cuda_worker(model.path, "float32") as worker:
        assert np.abs(worker.score(ids) - expected).max() < 2e-5
