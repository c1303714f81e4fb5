"""Mixtral: Llama's layer with experts, under names of its own."""

from __future__ import annotations

from rltrain.backends.megatron.convert.parts import ExpertNames, Layer, attention, mlp_or_experts, norm
from rltrain.types.model_spec import ModelSpec

EXPERTS = ExpertNames("block_sparse_moe.experts", "block_sparse_moe.gate", projections=("w1", "w3", "w2"))


def layer(spec: ModelSpec, number: int) -> Layer:
    return {
        "input_layernorm.weight": norm("input_layernorm", spec.hidden_size),
        **attention(spec),
        "pre_mlp_layernorm.weight": norm("post_attention_layernorm", spec.hidden_size),
        **mlp_or_experts(spec, number, EXPERTS),
    }
