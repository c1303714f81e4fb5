"""Tiny models of every family, with what is particular to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tests.integration.megatron_setup as given

YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
    "mscale": 0.707, "mscale_all_dim": 1.2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "moe_intermediate_size": 24, "first_k_dense_replace": 1, "num_hidden_layers": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    family: str
    """Of transformers' classes."""
    fields: dict[str, Any] = field(default_factory=dict)
    tied: bool = False
    config: str = ""
    """Where it isn't called like the family."""


DENSE = {
    "llama-biases": Model("Llama", {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}),
    "llama-linear": Model("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama-yarn": Model("Llama", {"rope_parameters": YARN}),
    "mistral": Model("Mistral", {"sliding_window": 7, "head_dim": 16}),
    "qwen2": Model("Qwen2", tied=True),
    "qwen3": Model("Qwen3", {"head_dim": 16}),
    "glm4": Model("Glm4", {"head_dim": 16, "attention_bias": True, "pad_token_id": 0}),
    "gemma2": Model(
        "Gemma2",
        {
            "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 7, "pad_token_id": 0,
            "attn_logit_softcapping": None, "final_logit_softcapping": None,
        },
        tied=True,
    ),
    "gemma3": Model(
        "Gemma3",
        {
            "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 7, "pad_token_id": 0,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        tied=True,
        config="Gemma3Text",
    ),
}  # fmt: skip
SPARSE = {
    "qwen3-moe": Model("Qwen3Moe", EXPERTS | {"head_dim": 16, "norm_topk_prob": True, "mlp_only_layers": [2]}),
    "qwen2-moe": Model("Qwen2Moe", EXPERTS | {"shared_expert_intermediate_size": 40, "decoder_sparse_step": 2}),
    "mixtral": Model("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 9}),
    "deepseek-v2": Model(
        "DeepseekV2",
        LATENT | {
            "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
            "rope_parameters": YARN,
        },
    ),
    "deepseek-v2-lite": Model(
        "DeepseekV2", LATENT | {"topk_method": "greedy", "q_lora_rank": None, "n_group": 1, "topk_group": 1}
    ),
    "deepseek-v3": Model(
        "DeepseekV3",
        LATENT | {
            "topk_method": "noaux_tc", "scoring_func": "sigmoid", "n_group": 4, "topk_group": 2,
            "routed_scaling_factor": 2.5, "rope_parameters": YARN,
        },
    ),
}  # fmt: skip
MODELS = DENSE | SPARSE


def save(path: Path, name: str, **changes: Any) -> Any:
    """A transformers model in fp32 with four layers and a vocabulary that two ranks can't share evenly.

    `changes` are of what is given here for the family.
    """
    import transformers

    model = MODELS[name]
    fields = {
        "vocab_size": given.VOCABULARY + 1, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "tie_word_embeddings": model.tied, "initializer_range": 0.1, "attn_implementation": "eager", "eos_token_id": 1,
    }  # fmt: skip
    config = getattr(transformers, f"{model.config or model.family}Config")(**(fields | model.fields | changes))
    torch.manual_seed(0)
    made = getattr(transformers, f"{model.family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
        for buffer_name, buffer in made.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.add_(torch.randn_like(buffer) * 0.3)
    made.save_pretrained(path)
    return made
