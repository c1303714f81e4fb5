"""Megatron's own configs of a role, built in this one place."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

from rltrain.config.errors import Problem, UserError
from rltrain.config.model import RoleConfig
from rltrain.types.model_spec import ModelSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class MegatronArgs:
    transformer: TransformerConfig
    optimizer: OptimizerConfig
    ddp: DistributedDataParallelConfig


def megatron_args(role: RoleConfig, spec: ModelSpec, *, device: str) -> MegatronArgs:
    """Raises UserError naming every pass-through field that Megatron doesn't have or refuses."""
    dtype = DTYPES[role.model.dtype]
    given = role.megatron
    ddp: dict[str, Any] = {"grad_reduce_in_fp32": True, "overlap_grad_reduce": False} | given.ddp
    optimizer: dict[str, Any] = _optimizer(role, dtype) | given.optimizer
    optimizer.setdefault("use_distributed_optimizer", ddp.get("use_distributed_optimizer", False))
    ddp.setdefault("use_distributed_optimizer", optimizer["use_distributed_optimizer"])
    problems = [
        Problem(key=f"actor.megatron.{section}.{name}", rule=f"is no field of {owner.__name__}")
        for section, owner, fields in (
            ("transformer", TransformerConfig, given.transformer),
            ("optimizer", OptimizerConfig, given.optimizer),
            ("ddp", DistributedDataParallelConfig, given.ddp),
        )
        for name in fields
        if name not in {field.name for field in dataclasses.fields(owner)}
    ]
    if problems:
        raise UserError(problems)
    transformer: dict[str, Any] = _transformer(spec, dtype, device) | given.transformer
    try:
        return MegatronArgs(
            TransformerConfig(**transformer), OptimizerConfig(**optimizer), DistributedDataParallelConfig(**ddp)
        )
    except (ValueError, AssertionError, TypeError) as error:
        raise UserError.single("actor.megatron", f"Megatron refuses it: {error}") from error


def _transformer(spec: ModelSpec, dtype: torch.dtype, device: str) -> dict[str, Any]:
    return {
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_heads,
        "num_query_groups": spec.num_kv_heads,
        "kv_channels": spec.head_dim,
        "ffn_hidden_size": spec.intermediate_size,
        "normalization": "RMSNorm",
        "layernorm_epsilon": spec.norm_epsilon,
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "add_bias_linear": False,
        "add_qkv_bias": spec.qkv_bias,
        "qk_layernorm": spec.qk_norm,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "params_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
        "calculate_per_token_loss": True,
        "use_cpu_initialization": device == "cpu",
        # Off, linear layers lose the attribute by which the gradient's norm counts their shards.
        "perform_initialization": True,
        # These two torch.compile fuses; on a CPU it would need a C++ compiler, for little.
        "bias_activation_fusion": device == "cuda",
        "bias_dropout_fusion": device == "cuda",
        # The others need TransformerEngine or Apex.
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False,
        "apply_rope_fusion": False,
        "persist_layer_norm": False,
        "batch_p2p_sync": False,
    }


def _optimizer(role: RoleConfig, dtype: torch.dtype) -> dict[str, Any]:
    config = role.optimizer
    return {
        "optimizer": "adam",
        "lr": config.learning_rate,
        "min_lr": 0.0,
        "weight_decay": config.weight_decay,
        "adam_beta1": config.beta1,
        "adam_beta2": config.beta2,
        "adam_eps": config.epsilon,
        "clip_grad": config.clip_grad or 0.0,
        "params_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
    }
