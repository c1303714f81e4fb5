"""How the config.json of each family that the trainer builds is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from rltrain.types.hf_config import FULL, SLIDING, Config, Family, rope_fields, rope_parameters, rope_type
from rltrain.types.model_parts import ExpertsSpec, LatentSpec

QWEN3_HEAD_DIM = 128
"""Of a Qwen3 config without `head_dim`; most other families divide the hidden size."""
GLM4_HEAD_DIM = 128
GEMMA_HEAD_DIM = 256
WINDOW = 4096
"""Of a config without `sliding_window`."""
GEMMA3_PATTERN = 6
"""Every sixth layer attends to all."""


def _llama(config: Config) -> dict[str, Any]:
    biased = bool(config.get("attention_bias"))
    return {"qkv_bias": biased, "output_bias": biased, "mlp_bias": bool(config.get("mlp_bias"))}


def _mistral(config: Config) -> dict[str, Any]:
    window = config.get("sliding_window", WINDOW)
    return _windows(config, window, lambda number: True)


def _qwen2(_config: Config) -> dict[str, Any]:
    return {"qkv_bias": True}


def _qwen3(config: Config) -> dict[str, Any]:
    return {"qk_norm": True, "head_dim": int(config.get("head_dim") or QWEN3_HEAD_DIM)}


def _windows(config: Config, window: int | None, slides: Callable[[int], bool]) -> dict[str, Any]:
    """`slides` says it of a layer where `layer_types` doesn't."""
    count = int(config["num_hidden_layers"])
    kinds = config.get("layer_types") or [SLIDING if window and slides(number) else FULL for number in range(count)]
    return {"windows": tuple(window if kind == SLIDING else None for kind in kinds)}


def _glm4(config: Config) -> dict[str, Any]:
    head_dim = int(config.get("head_dim") or GLM4_HEAD_DIM)
    share = rope_parameters(config).get("partial_rotary_factor") or config.get("partial_rotary_factor") or 0.5
    return {
        "head_dim": head_dim,
        "qkv_bias": bool(config.get("attention_bias", True)),
        "post_norms": True,
        "rotary_dim": int(head_dim * float(share)),
        "rotary_interleaved": True,
    }


def _gemma(config: Config) -> dict[str, Any]:
    return {
        "head_dim": int(config.get("head_dim") or GEMMA_HEAD_DIM),
        "post_norms": True,
        "zero_centred_norms": True,
        "activation": "gelu_tanh",
        "embedding_scale": float(config["hidden_size"]) ** 0.5,
        "query_scale": float(config.get("query_pre_attn_scalar") or 256) ** -0.5,
        "tied": bool(config.get("tie_word_embeddings", True)),
    }


def _gemma2(config: Config) -> dict[str, Any]:
    return _gemma(config) | _windows(config, config.get("sliding_window", WINDOW), lambda number: number % 2 == 0)


def _gemma3(config: Config) -> dict[str, Any]:
    """Layers with a window turn by a base of their own, without scaling."""
    rope = rope_parameters(config)
    pattern = int(config.get("sliding_window_pattern") or GEMMA3_PATTERN)
    window = config.get("sliding_window", WINDOW)
    full = rope_fields(rope.get(FULL) or rope, {"rope_theta": 1e6} | dict(config))
    sliding: Config = rope.get(SLIDING) or {}
    local = sliding.get("rope_theta") or config.get("rope_local_base_freq") or 1e4
    slides = _windows(config, window, lambda number: (number + 1) % pattern != 0)
    return _gemma(config) | full | slides | {"qk_norm": True, "window_rope_theta": float(local)}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    head_dim = config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"])
    return {"qk_norm": True, "head_dim": int(head_dim), "experts": _qwen_experts(config)}


def _qwen2_moe(config: Config) -> dict[str, Any]:
    shared = {"shared_size": int(config["shared_expert_intermediate_size"]), "shared_gate": True}
    return {"qkv_bias": bool(config.get("qkv_bias", True)), "experts": _qwen_experts(config, **shared)}


def _qwen_experts(config: Config, **shared: Any) -> ExpertsSpec:
    dense: list[int] = config.get("mlp_only_layers") or []
    step = int(config.get("decoder_sparse_step") or 1)
    count = int(config["num_hidden_layers"])
    return ExpertsSpec(
        count=_num_experts(config),
        per_token=int(config["num_experts_per_tok"]),
        intermediate_size=int(config["moe_intermediate_size"]),
        sparse_layers=tuple(number not in dense and (number + 1) % step == 0 for number in range(count)),
        normalised=bool(config.get("norm_topk_prob", False)),
        **shared,
    )


def _num_experts(config: Config) -> int:
    """Under its name of either release."""
    found = config.get("num_experts") or config.get("num_local_experts")
    if found is None:
        raise KeyError("num_experts")
    return int(found)


def _mixtral(config: Config) -> dict[str, Any]:
    experts = ExpertsSpec(
        count=_num_experts(config),
        per_token=int(config["num_experts_per_tok"]),
        intermediate_size=int(config["intermediate_size"]),
        sparse_layers=(True,) * int(config["num_hidden_layers"]),
    )
    return {"experts": experts} | _windows(config, config.get("sliding_window"), lambda number: True)


def _deepseek(config: Config, **experts: Any) -> dict[str, Any]:
    rank = config.get("q_lora_rank")
    latent = LatentSpec(
        query_rank=None if rank is None else int(rank),
        key_value_rank=int(config["kv_lora_rank"]),
        plain_dim=int(config["qk_nope_head_dim"]),
        rotary_dim=int(config["qk_rope_head_dim"]),
        value_dim=int(config["v_head_dim"]),
    )
    first, count = int(config.get("first_k_dense_replace") or 0), int(config["num_hidden_layers"])
    return {
        "latent": latent,
        "head_dim": latent.query_dim,
        "num_kv_heads": int(config["num_attention_heads"]),
        "rotary_dim": latent.rotary_dim,
        "rotary_interleaved": True,
        "query_scale": latent.query_dim**-0.5 * _yarn_query_scale(rope_parameters(config)),
        "experts": ExpertsSpec(
            count=int(config["n_routed_experts"]),
            per_token=int(config["num_experts_per_tok"]),
            intermediate_size=int(config["moe_intermediate_size"]),
            sparse_layers=tuple(number >= first for number in range(count)),
            shared_size=int(config["moe_intermediate_size"]) * int(config.get("n_shared_experts") or 0) or None,
            scale=float(config.get("routed_scaling_factor", 1.0)),
            **experts,
        ),
    }


def _yarn_query_scale(rope: Config) -> float:
    """DeepSeek's queries and keys both are longer by this, in its own reading of YaRN (Peng et al. 2023)."""
    share = float(rope.get("mscale_all_dim") or 0)
    if rope_type(rope) == "default" or not share or rope["factor"] <= 1:
        return 1.0
    return (0.1 * share * math.log(rope["factor"]) + 1) ** 2


def _deepseek_v2(config: Config) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    if config.get("topk_method") == "group_limited_greedy":
        groups = {"groups": int(config["n_group"]), "chosen_groups": int(config["topk_group"])}
    return _deepseek(config, normalised=False, **groups)


def _deepseek_v3(config: Config) -> dict[str, Any]:
    return _deepseek(
        config,
        score="sigmoid",
        correction_bias=True,
        groups=int(config.get("n_group") or 1),
        chosen_groups=int(config.get("topk_group") or 1),
        group_score="two_largest",
    ) | {"num_extra_layers": int(config.get("num_nextn_predict_layers") or config.get("num_mtp_layers") or 0)}


def _v2_routing(config: Config) -> Iterator[tuple[str, str]]:
    """vLLM always chooses groups first, which transformers does for one method alone."""
    groups = (config.get("n_group"), config.get("topk_group"))
    if config.get("topk_method") != "group_limited_greedy" and groups != (1, 1):
        rule = f"topk_method = greedy with n_group = {groups[0]} and topk_group = {groups[1]}, "
        yield f"{rule}which vLLM can't choose experts by", "supported: 1 of both"


# Without transformers' own knowledge of the family, vLLM would read "softmax" and load no biases.
V3_ROUTING = {"topk_method": ("noaux_tc",), "scoring_func": ("sigmoid",), "norm_topk_prob": (None, True)}
V2_ROUTING = {
    "topk_method": (None, "greedy", "group_limited_greedy"),
    "scoring_func": (None, "softmax"),
    "norm_topk_prob": (None, False),
}
# DeepSeek's latents have norms with this epsilon, whatever the config says; vLLM turns neighbours alone.
DEEPSEEK = {"rms_norm_eps": (None, 1e-6), "moe_layer_freq": (None, 1), "rope_interleave": (None, True)}
WINDOWED = frozenset({"sliding_window"})
# They have it and don't use it; vLLM counts `max_window_layers` the other way round.
QWEN = frozenset({"sliding_window"})
GEMMA = WINDOWED | {"layer_types", "hidden_act", "query_pre_attn_scalar"}
GELU = {"hidden_activation": (None, "gelu_pytorch_tanh")}
GEMMA2_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
FAMILIES = {
    "LlamaForCausalLM": Family("llama", _llama, frozenset({"attention_bias", "mlp_bias"})),
    "MistralForCausalLM": Family("mistral", _mistral, WINDOWED, {"layer_types": (None,)}),
    "Qwen2ForCausalLM": Family("qwen2", _qwen2, QWEN | {"attention_bias"}),
    "Qwen3ForCausalLM": Family("qwen3", _qwen3, QWEN),
    "Qwen2MoeForCausalLM": Family("qwen2_moe", _qwen2_moe, QWEN | {"qkv_bias"}),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", _qwen3_moe, QWEN),
    "MixtralForCausalLM": Family("mixtral", _mixtral, WINDOWED),
    "Glm4ForCausalLM": Family("glm4", _glm4, frozenset({"attention_bias", "partial_rotary_factor"})),
    "Gemma2ForCausalLM": Family("gemma2", _gemma2, GEMMA, GELU, GEMMA2_CAPS),
    "Gemma3ForCausalLM": Family("gemma3", _gemma3, GEMMA, GELU),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", _deepseek_v2, allowed=DEEPSEEK | V2_ROUTING, more=_v2_routing),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", _deepseek_v3, allowed=DEEPSEEK | V3_ROUTING),
}
"""By the architecture in `config.json`."""
