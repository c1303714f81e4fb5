"""Qwen2: Llama's layer with biases in the query, key and value projections."""

from rltrain.backends.megatron.convert import llama

LAYER = llama.LAYER | {
    "self_attention.linear_qkv.bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
}
