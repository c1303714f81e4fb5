"""Numbers of a model's config.json that no model has: told before anything is computed from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

SIZES = {
    "num_hidden_layers": (1, 10_000),
    "hidden_size": (1, 2**20),
    "num_attention_heads": (1, 2**16),
    "num_key_value_heads": (1, 2**16),
    "head_dim": (1, 2**16),
    "intermediate_size": (1, 2**24),
    "vocab_size": (1, 2**24),
    "max_position_embeddings": (2, 2**30),
    "num_experts": (0, 2**16),
    "num_local_experts": (0, 2**16),
    "n_routed_experts": (0, 2**16),
    "n_shared_experts": (0, 2**16),
    "num_experts_per_tok": (0, 2**16),
    "moe_intermediate_size": (0, 2**24),
    "shared_expert_intermediate_size": (0, 2**24),
    "first_k_dense_replace": (0, 10_000),
    "decoder_sparse_step": (0, 10_000),
    "kv_lora_rank": (0, 2**20),
    "q_lora_rank": (0, 2**20),
    "qk_nope_head_dim": (0, 2**16),
    "qk_rope_head_dim": (0, 2**16),
    "v_head_dim": (0, 2**16),
}
"""Whole numbers with their least and greatest values; null is as good as none."""
MEASURES = {"rms_norm_eps": (1e-30, 1.0), "initializer_range": (0.0, 10.0), "rope_theta": (1e-3, 1e15)}
FLAGS = ("tie_word_embeddings",)


def out_of_range(config: Mapping[str, Any], generation: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the numbers of `config.json` and with the EOS ids of `generation_config.json`."""
    wrong = {name: limits for name, limits in SIZES.items() if not _fits(config.get(name), limits)}
    for name, (low, high) in wrong.items():
        yield f"{name} = {_shown(config[name])}, which must be a whole number of {low} to {high}"
    if not wrong and not _divides(config):
        yield "num_key_value_heads that doesn't divide num_attention_heads"
    for name, (low, high) in MEASURES.items():
        value = config.get(name)
        if value is not None and not (_is_float(value) and low <= value <= high):
            yield f"{name} = {_shown(value)}, which must be a number of {low:g} to {high:g}"
    for name in FLAGS:
        if not isinstance(config.get(name), bool | None):
            yield f"{name} = {_shown(config[name])}, which must be true or false"
    size: Any = config.get("vocab_size")
    last: int = size - 1 if _is_int(size) else SIZES["vocab_size"][1]
    for ids in (config.get("eos_token_id"), generation.get("eos_token_id")):
        for one in cast("list[Any]", ids if isinstance(ids, list) else [] if ids is None else [ids]):
            if one is None or not _fits(one, (0, last)):
                yield f"eos_token_id {_shown(one)}, which must be an id of 0 to {last}"


def _fits(value: Any, limits: tuple[int, int]) -> bool:
    return value is None or (_is_int(value) and limits[0] <= value <= limits[1])


def _divides(config: Mapping[str, Any]) -> bool:
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    return heads is None or groups is None or heads % groups == 0


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
