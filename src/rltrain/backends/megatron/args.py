"""Megatron's own configs of a role, built in this one place."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

from rltrain.backends.megatron.layout_args import ddp_fields, optimizer_fields, transformer_fields
from rltrain.config.errors import Problem, UserError
from rltrain.config.model import RoleConfig
from rltrain.types.model_parts import ExpertsSpec, LatentSpec
from rltrain.types.model_spec import ModelSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ACTIVATIONS = {"silu": F.silu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh")}


@dataclasses.dataclass(frozen=True)
class MegatronArgs:
    transformer: TransformerConfig
    optimizer: OptimizerConfig
    ddp: DistributedDataParallelConfig


def megatron_args(role: RoleConfig, spec: ModelSpec, *, device: str) -> MegatronArgs:
    """Raises UserError naming every pass-through field that Megatron doesn't have or refuses."""
    dtype = DTYPES[role.model.dtype]
    given = role.megatron
    ddp: dict[str, Any] = ddp_fields(role.parallel) | given.ddp
    optimizer: dict[str, Any] = _optimizer(role, dtype) | optimizer_fields(role.parallel) | given.optimizer
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
    layout = transformer_fields(role.parallel, role.recompute, dtype)
    transformer: dict[str, Any] = _transformer(spec, dtype, device) | layout | given.transformer
    kind = TransformerConfig if spec.latent is None else MLATransformerConfig
    try:
        return MegatronArgs(kind(**transformer), OptimizerConfig(**optimizer), DistributedDataParallelConfig(**ddp))
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
        "activation_func": ACTIVATIONS[spec.activation],
        "add_bias_linear": False,
        "add_qkv_bias": spec.qkv_bias,
        "qk_layernorm": spec.qk_norm,
        "layernorm_zero_centered_gamma": spec.zero_centred_norms,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "params_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
        "calculate_per_token_loss": True,
        "use_cpu_initialization": device == "cpu",
        # Off, linear layers lose the attribute by which the gradient's norm counts their shards.
        "perform_initialization": True,
        # These two torch.compile fuses; on a CPU it would need a C++ compiler, for little.
        "bias_activation_fusion": device == "cuda" and spec.activation == "silu",
        "bias_dropout_fusion": device == "cuda",
        # The others need TransformerEngine or Apex.
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False,
        "apply_rope_fusion": False,
        "persist_layer_norm": False,
        "batch_p2p_sync": False,
        **(_latent(spec.latent) if spec.latent else {}),
        **(_experts(spec.experts) if spec.experts else {}),
    }


def _latent(spec: LatentSpec) -> dict[str, Any]:
    return {
        "q_lora_rank": spec.query_rank,
        "kv_lora_rank": spec.key_value_rank,
        "qk_head_dim": spec.plain_dim,
        "qk_pos_emb_head_dim": spec.rotary_dim,
        "v_head_dim": spec.value_dim,
        "rope_type": "rope",  # ours turns in its place
        "rotary_scaling_factor": 1.0,
    }


def _experts(spec: ExpertsSpec) -> dict[str, Any]:
    """Losses and bias updates that spread tokens over the experts are off: they pull away from the rewards."""
    return {
        "num_moe_experts": spec.count,
        "moe_router_topk": spec.per_token,
        "moe_ffn_hidden_size": spec.intermediate_size,
        "moe_layer_freq": [int(sparse) for sparse in spec.sparse_layers],
        "moe_shared_expert_intermediate_size": spec.shared_size,
        "moe_shared_expert_gate": spec.shared_gate,
        "moe_router_score_function": spec.score,
        # The softmax of the chosen experts' logits is that of all of them, divided by its sum over the chosen.
        "moe_router_pre_softmax": not spec.normalised,
        "moe_router_topk_scaling_factor": None if spec.scale == 1 else spec.scale,
        "moe_router_enable_expert_bias": spec.correction_bias,
        "moe_router_bias_update_rate": 0.0,
        "moe_router_dtype": "fp32",
        "moe_aux_loss_coeff": 0.0,
        "moe_z_loss_coeff": None,
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
