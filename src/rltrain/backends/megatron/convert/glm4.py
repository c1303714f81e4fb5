"""GLM-4: norms behind attention and MLP, gate and up in one tensor."""

from __future__ import annotations

from rltrain.backends.megatron.convert.parts import Layer, attention, norm
from rltrain.backends.megatron.convert.weights import Weight
from rltrain.types.model_spec import ModelSpec


def layer(spec: ModelSpec, _number: int) -> Layer:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    return {
        "input_layernorm.weight": norm("input_layernorm", hidden),
        **attention(spec),
        "self_attn_bda.norm.weight": norm("post_self_attn_layernorm", hidden),
        "pre_mlp_layernorm.weight": norm("post_attention_layernorm", hidden),
        "mlp.linear_fc1.weight": Weight({"mlp.gate_up_proj.weight": (2 * inner, hidden)}, dim=0, pieces=2),
        "mlp.linear_fc2.weight": Weight({"mlp.down_proj.weight": (hidden, inner)}, dim=1),
        "mlp_bda.norm.weight": norm("post_mlp_layernorm", hidden),
    }
