"""Qwen2: Llama's layer with biases in the query, key and value projections."""

from rltrain.backends.megatron.convert import llama

LAYER = llama.LAYER | llama.QKV_BIAS
