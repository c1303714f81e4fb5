from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rltrain.backends.vllm.arguments import MOST_SEQUENCES, OWNED, engine_arguments
from rltrain.backends.vllm.setup import EngineSetup
from rltrain.config.errors import UserError

SETUP = EngineSetup(
    model_path=Path("model"),
    dtype="float32",
    device="cpu",
    random_init=True,
    context_length=128,
    kv_cache_bytes=2**20,
    max_sequences=8,
    tensor_parallel=1,
    vocab_limit=100,
    seed=1,
    deterministic=False,
    arguments={},
)


def test_rol_01_log_probs_are_those_of_the_sampled_distribution() -> None:
    assert engine_arguments(SETUP)["logprobs_mode"] == "processed_logprobs"


def test_weights_that_a_sync_will_bring_arent_read() -> None:
    assert engine_arguments(SETUP)["load_format"] == "dummy"
    assert engine_arguments(replace(SETUP, random_init=False))["load_format"] == "auto"


def test_the_tokenizer_is_loaded_for_stop_texts_alone() -> None:
    assert engine_arguments(SETUP)["skip_tokenizer_init"] is True
    assert engine_arguments(replace(SETUP, stop_texts=True))["skip_tokenizer_init"] is False


def test_the_number_of_sequences_is_bounded_unless_it_is_given() -> None:
    many = replace(SETUP, max_sequences=10**6)
    assert engine_arguments(many)["max_num_seqs"] == MOST_SEQUENCES["cpu"]
    assert engine_arguments(replace(many, arguments={"max_num_seqs": 2000}))["max_num_seqs"] == 2000


def test_a_gpu_engine_decides_on_its_cache_and_compiles() -> None:
    found = engine_arguments(replace(SETUP, device="cuda", kv_cache_bytes=None))
    assert "kv_cache_memory_bytes" not in found
    assert "enforce_eager" not in found


def test_every_owned_argument_is_refused() -> None:
    for name in OWNED:
        with pytest.raises(UserError, match=rf"rollout\.vllm\.{name} = x: is set by rltrain"):
            engine_arguments(replace(SETUP, arguments={name: "x"}))
