"""DeepSeek-V2 and V3: latent attention, experts with shared ones, dense layers first."""

from __future__ import annotations

from rltrain.backends.megatron.convert.parts import ExpertNames, Layer, mlp_or_experts, norm
from rltrain.backends.megatron.convert.weights import Weight
from rltrain.types.model_parts import LatentSpec
from rltrain.types.model_spec import ModelSpec

EXPERTS = ExpertNames("mlp.experts", "mlp.gate", shared="mlp.shared_experts")


def layer(spec: ModelSpec, number: int) -> Layer:
    assert spec.latent is not None
    return {
        "input_layernorm.weight": norm("input_layernorm", spec.hidden_size),
        **_attention(spec, spec.latent),
        "pre_mlp_layernorm.weight": norm("post_attention_layernorm", spec.hidden_size),
        **mlp_or_experts(spec, number, EXPERTS),
    }


def _attention(spec: ModelSpec, latent: LatentSpec) -> Layer:
    hidden, heads, rank = spec.hidden_size, spec.num_heads, latent.key_value_rank

    def rows(name: str, *shape: int) -> Weight:
        return Weight({f"self_attn.{name}.weight": shape}, dim=0)

    if latent.query_rank is None:
        query = {"self_attention.linear_q_proj.weight": rows("q_proj", heads * latent.query_dim, hidden)}
    else:
        query = {
            "self_attention.linear_q_down_proj.weight": rows("q_a_proj", latent.query_rank, hidden),
            "self_attention.q_layernorm.weight": norm("self_attn.q_a_layernorm", latent.query_rank),
            "self_attention.linear_q_up_proj.weight": rows("q_b_proj", heads * latent.query_dim, latent.query_rank),
        }
    return query | {
        "self_attention.linear_kv_down_proj.weight": rows("kv_a_proj_with_mqa", rank + latent.rotary_dim, hidden),
        "self_attention.kv_layernorm.weight": norm("self_attn.kv_a_layernorm", rank),
        "self_attention.linear_kv_up_proj.weight": rows(
            "kv_b_proj", heads * (latent.plain_dim + latent.value_dim), rank
        ),
        "self_attention.linear_proj.weight": Weight(
            {"self_attn.o_proj.weight": (hidden, heads * latent.value_dim)}, dim=1
        ),
    }
