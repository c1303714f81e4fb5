"""All weights of a model, in the order in which they are read and sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from rltrain.backends.megatron.convert import deepseek, gemma, glm4, llama, mixtral
from rltrain.backends.megatron.convert.parts import Layer, norm
from rltrain.backends.megatron.convert.weights import Weight
from rltrain.checkpoint.safetensors_layout import TensorFacts
from rltrain.types.model_spec import ModelSpec

FAMILIES: dict[str, Callable[[ModelSpec, int], Layer]] = {
    "llama": llama.layer,
    "mistral": llama.layer,
    "qwen2": llama.layer,
    "qwen3": llama.layer,
    "qwen2_moe": llama.layer,
    "qwen3_moe": llama.layer,
    "mixtral": mixtral.layer,
    "glm4": glm4.layer,
    "gemma2": gemma.layer,
    "gemma3": gemma.layer,
    "deepseek_v2": deepseek.layer,
    "deepseek_v3": deepseek.layer,
}
"""The weights of a layer, which may depend on its number."""
EMBEDDING = "embedding.word_embeddings.weight"
OUTPUT = "output_layer.weight"
LAYERS = "decoder.layers."


def model_weights(spec: ModelSpec) -> dict[str, Weight]:
    """By Megatron's names, with layers numbered through all pipeline stages and experts through all ranks."""
    vocabulary = (spec.vocab_size, spec.hidden_size)
    found = {EMBEDDING: Weight({"model.embed_tokens.weight": vocabulary}, dim=0)}
    for number in range(spec.num_layers):
        for name, weight in FAMILIES[spec.family](spec, number).items():
            parts = {f"model.layers.{number}.{part}": shape for part, shape in weight.parts.items()}
            found[f"{LAYERS}{number}.{name}"] = dataclasses.replace(weight, parts=parts)
    found["decoder.final_layernorm.weight"] = norm("model.norm", spec.hidden_size)
    if not spec.tied:
        found[OUTPUT] = Weight({"lm_head.weight": vocabulary}, dim=0)
    return found


def hf_layout(spec: ModelSpec, dtype: torch.dtype) -> list[TensorFacts]:
    """The Hugging Face tensors, in the order of `model_weights`."""
    weights = model_weights(spec).values()
    return [TensorFacts(n, shape, one.dtype or dtype) for one in weights for n, shape in one.parts.items()]


def padded_vocab_size(vocab_size: int, ranks: int) -> int:
    """Rows of the embedding that the ranks share evenly; those past the vocabulary are zeros and score nothing."""
    return -(-vocab_size // ranks) * ranks
