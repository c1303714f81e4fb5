"""Llama, Mistral, Qwen2 and Qwen3, dense and with experts."""

from __future__ import annotations

from rltrain.backends.megatron.convert.parts import ExpertNames, Layer, attention, mlp_or_experts, norm
from rltrain.types.model_spec import ModelSpec

EXPERTS = ExpertNames("mlp.experts", "mlp.gate", shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")


def layer(spec: ModelSpec, number: int) -> Layer:
    return {
        "input_layernorm.weight": norm("input_layernorm", spec.hidden_size),
        **attention(spec),
        "pre_mlp_layernorm.weight": norm("post_attention_layernorm", spec.hidden_size),
        **mlp_or_experts(spec, number, EXPERTS),
    }
