"""Qwen3: Llama's layer with norms of each head's query and key."""

from rltrain.backends.megatron.convert import llama

LAYER = llama.LAYER | {
    "self_attention.q_layernorm.weight": ("self_attn.q_norm.weight",),
    "self_attention.k_layernorm.weight": ("self_attn.k_norm.weight",),
}
