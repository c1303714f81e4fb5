"""Megatron's configs from a role's, and the fields that pass through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rltrain.backends.megatron import shim
from rltrain.config.errors import UserError
from rltrain.config.model import (
    FullRecompute,
    MegatronOverrides,
    ModelConfig,
    NoRecompute,
    OptimizerConfig,
    ParallelConfig,
    Recompute,
    RoleConfig,
    SelectiveRecompute,
)
from rltrain.types.model_spec import ModelSpec

shim.install()

from rltrain.backends.megatron.args import MegatronArgs, megatron_args  # noqa: E402

SPEC = ModelSpec(
    path=Path("model"), family="qwen2", num_layers=2, hidden_size=48, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=80, vocab_size=96, norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=None, max_positions=64,
    tied=True, qkv_bias=True, qk_norm=False, initializer_range=0.02, eos_ids=(1,),
)  # fmt: skip


def make(
    overrides: dict[str, Any] | None = None,
    *,
    dtype: Any = "float32",
    optimizer: OptimizerConfig | None = None,
    parallel: ParallelConfig | None = None,
    recompute: Recompute | None = None,
) -> MegatronArgs:
    role = RoleConfig(
        model=ModelConfig(path=SPEC.path, dtype=dtype),
        parallel=parallel or ParallelConfig(),
        recompute=recompute or NoRecompute(),
        optimizer=optimizer or OptimizerConfig(learning_rate=1e-3),
        megatron=MegatronOverrides(**(overrides or {})),
    )
    return megatron_args(role, SPEC, device="cpu")


def test_the_model_and_the_optimizer_are_the_configs() -> None:
    config = OptimizerConfig(learning_rate=3e-4, beta1=0.8, beta2=0.95, epsilon=1e-7, weight_decay=0.2, clip_grad=None)
    args = make(dtype="bfloat16", optimizer=config)
    transformer, optimizer = args.transformer, args.optimizer
    assert (transformer.num_query_groups, transformer.kv_channels, transformer.ffn_hidden_size) == (2, 16, 80)
    assert (transformer.add_qkv_bias, transformer.qk_layernorm, transformer.layernorm_epsilon) == (True, False, 1e-5)
    assert (transformer.params_dtype, transformer.bf16, optimizer.bf16) == (torch.bfloat16, True, True)
    assert (optimizer.lr, optimizer.adam_beta1, optimizer.adam_beta2) == (3e-4, 0.8, 0.95)
    assert (optimizer.adam_eps, optimizer.weight_decay, optimizer.clip_grad) == (1e-7, 0.2, 0.0)


def test_fields_of_megatron_pass_through() -> None:
    optimizer, ddp = {"decoupled_weight_decay": False}, {"bucket_size": 1234}
    args = make({"transformer": {"attention_softmax_in_fp32": False}, "optimizer": optimizer, "ddp": ddp})
    assert args.transformer.attention_softmax_in_fp32 is False
    assert args.optimizer.decoupled_weight_decay is False
    assert args.ddp.bucket_size == 1234


def test_a_sharded_optimizer_is_set_on_both_sides() -> None:
    args = make(parallel=ParallelConfig(shard_optimizer=True, overlap_grad_reduce=True, overlap_param_gather=True))
    for config in (args.optimizer, args.ddp):
        assert config.use_distributed_optimizer and config.overlap_param_gather
    assert args.ddp.overlap_grad_reduce


def test_recomputation_is_the_configs() -> None:
    full, some = (make(recompute=kind).transformer for kind in (FullRecompute(layers=2), SelectiveRecompute()))
    assert (full.recompute_granularity, full.recompute_method, full.recompute_num_layers) == ("full", "uniform", 2)
    assert (some.recompute_granularity, some.recompute_modules) == ("selective", ["core_attn"])


def test_fields_that_megatron_does_not_have_are_all_named() -> None:
    wrong = {"transformer": {"attention_softmax": True}, "optimizer": {"learning": 1}, "ddp": {"buckets": 1}}
    with pytest.raises(UserError) as caught:
        make(wrong)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == [f"actor.megatron.{section}.{name}" for section, fields in wrong.items() for name in fields]
    assert "is no field of TransformerConfig" in str(caught.value)


def test_what_megatron_refuses_is_said_in_its_words() -> None:
    with pytest.raises(UserError, match=r"actor\.megatron: Megatron refuses it: .*tensor parallelism"):
        make(parallel=ParallelConfig(sequence=True))
