"""Between Megatron's parameters and the Hugging Face tensors they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rltrain.backends.megatron.convert import llama, qwen2, qwen3
from rltrain.types.model_spec import ModelSpec

FAMILIES = {"llama": llama.LAYER, "qwen2": qwen2.LAYER, "qwen3": qwen3.LAYER}
OUTSIDE = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
LAYERS = "decoder.layers."


def hf_names(name: str, spec: ModelSpec) -> tuple[str, ...]:
    """The Hugging Face tensors behind one of Megatron's parameters."""
    if name in OUTSIDE:
        return (OUTSIDE[name],)
    number, _, inside = name.removeprefix(LAYERS).partition(".")
    return tuple(f"model.layers.{number}.{part}" for part in FAMILIES[spec.family][inside])


def join(parts: Sequence[Tensor], spec: ModelSpec) -> Tensor:
    """Megatron's parameter: query, key and value lie side by side for each group of heads, gate above up."""
    if len(parts) != 3:
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))
    grouped = [part.reshape(spec.num_kv_heads, -1, *part.shape[1:]) for part in parts]
    return torch.cat(grouped, 1).reshape(-1, *parts[0].shape[1:])


def split(tensor: Tensor, num_parts: int, spec: ModelSpec) -> list[Tensor]:
    """The inverse of `join`."""
    if num_parts != 3:
        return [tensor] if num_parts == 1 else list(tensor.chunk(num_parts))
    query = spec.num_heads // spec.num_kv_heads * spec.head_dim
    grouped = tensor.reshape(spec.num_kv_heads, query + 2 * spec.head_dim, *tensor.shape[1:])
    parts = grouped.split([query, spec.head_dim, spec.head_dim], 1)
    return [part.reshape(-1, *tensor.shape[1:]) for part in parts]
