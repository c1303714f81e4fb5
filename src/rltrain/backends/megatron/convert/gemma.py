"""Gemma 2 and 3 (text): norms before and behind attention and MLP."""

from __future__ import annotations

from rltrain.backends.megatron.convert.parts import Layer, attention, mlp, norm
from rltrain.types.model_spec import ModelSpec


def layer(spec: ModelSpec, _number: int) -> Layer:
    hidden = spec.hidden_size
    return {
        "input_layernorm.weight": norm("input_layernorm", hidden),
        **attention(spec),
        "self_attn_bda.norm.weight": norm("post_attention_layernorm", hidden),
        "pre_mlp_layernorm.weight": norm("pre_feedforward_layernorm", hidden),
        **mlp(spec),
        "mlp_bda.norm.weight": norm("post_feedforward_layernorm", hidden),
    }
