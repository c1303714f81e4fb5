"""Tests of rltrain.trainer.gpu_memory, against numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rltrain.config.load import load_args
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.trainer.gpu_memory import GIB, activation_bytes, memory_problems, plan_gpu
from rltrain.types.model_spec import ModelSpec

QUICKSTART = Path(__file__).resolve().parents[3] / "configs" / "quickstart.yaml"
H200 = Machine("cuda", 1, 143771 * 2**20)
SIZES = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "architectures": ["Qwen3ForCausalLM"],
}
"""Qwen3-4B's."""


def spec_of(path: Path, **changes: object) -> ModelSpec:
    (path / "config.json").write_text(json.dumps(SIZES | changes), encoding="utf-8")
    return ModelSpec.read(path)


def arguments(*overrides: str) -> Args:
    sizes = ["rollout.prompts_per_step=64", "rollout.max_tokens=1024", "actor.tokens_per_micro_batch=8192"]
    return load_args(QUICKSTART, ["actor.model.dtype=bfloat16", *sizes, *overrides])


def test_a_shared_gpu_holds_the_trainers_state_and_gives_the_cache_what_is_left(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    plan = plan_gpu(arguments("rollout.sleep=never"), spec, H200)
    assert plan is not None
    count = spec.num_parameters
    assert plan.trainer["weights"] + plan.trainer["gradients (float32)"] + plan.trainer["optimizer"] == 18 * count
    assert plan.trainer["weight sync"] == 2 * 2 * GIB  # 8 GB of weights go through two buckets
    assert plan.least_cache_bytes == 2 * 36 * 8 * 128 * 2 * (1032 // 16 + 2) * 16
    used = sum(plan.trainer.values()) + sum(plan.engine.values()) + plan.activations_bytes + plan.cache_bytes
    assert used == plan.total_bytes  # 512 sequences want more than there is
    assert plan.cache_bytes < plan.wanted_cache_bytes
    assert plan.fits


def test_the_engine_sleeps_where_its_cache_wouldnt_fit_otherwise(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    auto, never = (plan_gpu(arguments(f"rollout.sleep={how}"), spec, H200) for how in ("auto", "never"))
    assert auto is not None
    assert never is not None
    assert auto.sleeps
    assert auto.cache_bytes > never.cache_bytes
    small = plan_gpu(arguments("rollout.max_tokens=64"), spec_of(tmp_path, num_hidden_layers=4), H200)
    assert small is not None
    assert not small.sleeps
    assert small.cache_bytes == small.wanted_cache_bytes


def test_what_doesnt_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, hidden_size=4096, intermediate_size=12288, tie_word_embeddings=False)  # Qwen3-8B's
    (problem,) = memory_problems(arguments(), spec, H200)
    assert problem.rule.startswith("8,190,735,360 parameters don't fit on a GPU of 138 GiB")
    assert "weights 15.3 GiB, gradients (float32) 30.5 GiB, optimizer 91.5 GiB" in problem.rule
    assert memory_problems(arguments(), spec_of(tmp_path), H200) == []


@pytest.mark.parametrize("machine", [Machine("cpu", 0), Machine("cuda", 1, None), Machine("cuda", 2, 80 * GIB)])
def test_nothing_is_planned_where_no_gpu_is_shared_or_its_size_isnt_known(tmp_path: Path, machine: Machine) -> None:
    assert plan_gpu(arguments(), spec_of(tmp_path), machine) is None


def test_activations_grow_with_the_micro_batch(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    one, two = (activation_bytes(spec, tokens=tokens, width=2) for tokens in (4096, 8192))
    layer = 4 * 2560 + 4 * 4096 + 8 * 1024 + 3 * 9728
    assert two - one == int(1.1 * 2 * 8192 * 36 * layer) - int(1.1 * 2 * 4096 * 36 * layer)
