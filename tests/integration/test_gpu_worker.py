"""The trainer on a GPU: packed sequences don't see one another, and fp32 agrees with transformers."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rltrain.backends.megatron.setup import TrainSetup
from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import ModelConfig, OptimizerConfig, RoleConfig
from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.types.batch import PackedRows

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


def packed(found: list[np.ndarray]) -> PackedRows:
    """Every token but a sequence's first is scored."""
    ends = np.cumsum([0, *(len(ids) for ids in found)])
    rows = [np.arange(start, end - 1) for start, end in pairwise(ends)]
    return PackedRows(
        tokens_T=np.concatenate(found),
        positions_T=np.concatenate([np.arange(len(ids), dtype=np.int32) for ids in found]),
        rows_E=np.arange(ends[-1]),
        cu_seqlens=ends.astype(np.int32),
        row_P=np.concatenate(rows),
        target_P=np.concatenate([ids[1:] for ids in found]).astype(np.int64),
        sample_P=np.concatenate([np.full(len(row), number) for number, row in enumerate(rows)]),
        t_P=np.concatenate([np.arange(len(row)) for row in rows]),
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_lgp_06_packed_log_probs_are_those_of_each_sequence_alone(model: Any, dtype: str, tolerance: float) -> None:
    first, second = sequences(0), sequences(1)
    with cuda_worker(model.path, dtype) as worker:
        together = worker._score(packed(first), temperature=1.0)
        alone = np.concatenate([worker._score(packed([ids]), temperature=1.0) for ids in first])
        assert np.abs(together - alone).max() < tolerance
        others = worker._score(packed([second[0], *first[1:]]), temperature=1.0)
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
