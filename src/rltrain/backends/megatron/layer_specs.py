"""Megatron's layers for each model: its local ones, with our own modules where they lack something."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch import Tensor

from rltrain.backends.megatron.experts import expert_layer
from rltrain.backends.megatron.latent_attention import LatentAttention, LatentCore
from rltrain.backends.megatron.modules import RMSNorm, VarlenAttention
from rltrain.types.model_spec import ModelSpec


class NormedAdd(torch.nn.Module):
    """The residual sum, of an output that is normed first; stands where Megatron adds bias and residual."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.norm = RMSNorm(config, config.hidden_size, config.layernorm_epsilon)

    def forward(self, training: bool, _fused: bool) -> Any:
        """A function of output and bias, residual and the share of what is dropped."""

        def add(output_with_bias: tuple[Tensor, Tensor | None], residual: Tensor, dropout: float) -> Tensor:
            output, bias = output_with_bias
            normed = self.norm(output if bias is None else output + bias)
            return residual + F.dropout(normed, dropout, training)

        return add


class BiasedColumns(ColumnParallelLinear):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **(options | {"bias": True}))


class BiasedRows(RowParallelLinear):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **(options | {"bias": True}))


def block_submodules(config: Any, spec: ModelSpec, *, vp_stage: int | None = None) -> TransformerBlockSubmodules:
    """Those of this stage's layers, or of its piece `vp_stage`."""
    first = get_transformer_layer_offset(config, vp_stage)
    numbers = range(first, first + get_num_layers_to_build(config, vp_stage))
    norm: Any = RMSNorm  # Megatron's annotation wants an instance, its builder a class
    return TransformerBlockSubmodules(layer_specs=[_layer(config, spec, number) for number in numbers], layer_norm=norm)


def _layer(config: Any, spec: ModelSpec, number: int) -> ModuleSpec:
    layer_spec = get_gpt_layer_local_spec(
        qk_layernorm=spec.qk_norm, multi_latent_attention=spec.latent is not None, normalization="RMSNorm"
    )
    layer: Any = layer_spec.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = RMSNorm
    if spec.latent is None:
        _use_attention(layer.self_attention.submodules, spec, number)
    else:
        _use_latent_attention(layer.self_attention, spec)
    if spec.post_norms:
        layer.self_attn_bda = layer.mlp_bda = ModuleSpec(NormedAdd, params={"config": config})
    if spec.is_sparse(number):
        assert spec.experts is not None
        layer.mlp = expert_layer(config, spec.experts)
    elif spec.mlp_bias:
        layer.mlp.submodules = dataclasses.replace(
            layer.mlp.submodules, linear_fc1=BiasedColumns, linear_fc2=BiasedRows
        )
    return layer_spec


def _use_attention(attention: Any, spec: ModelSpec, number: int) -> None:
    window = spec.window(number)
    second = window is not None and spec.window_rope_theta is not None
    params = {"scale": spec.query_scale, "window": window, "rotation": int(second)}
    attention.core_attention = ModuleSpec(VarlenAttention, params=params)
    if spec.qk_norm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    if spec.output_bias:
        attention.linear_proj = BiasedRows


def _use_latent_attention(attention: Any, spec: ModelSpec) -> None:
    attention.module = LatentAttention
    params = {"scale": spec.query_scale, "rotation": None}
    attention.submodules.core_attention = ModuleSpec(LatentCore, params=params)
    attention.submodules.q_layernorm = attention.submodules.kv_layernorm = RMSNorm
