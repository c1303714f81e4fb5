"""What a config.json is read as, against transformers' own reading; and what is refused because it isn't built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.errors import UserError
from rltrain.types.model_spec import ModelSpec

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip


def write(path: Path, family: str, **changes: Any) -> Path:
    config: dict[str, Any] = {
        "architectures": [f"{family}ForCausalLM"], "model_type": family.lower(), "vocab_size": 96, "hidden_size": 48,
        "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "hidden_act": "silu",
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config | changes))
    return path


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"mlp_bias": False, "attention_bias": False, "head_dim": None, "tie_word_embeddings": True}),
        ("Qwen2", {"use_sliding_window": False, "sliding_window": 32, "num_key_value_heads": 4}),
        ("Qwen2", {"attention_bias": True, "tie_word_embeddings": True}),  # a key that Qwen2 doesn't have
        ("Qwen3", {"head_dim": 16, "layer_types": ["full_attention"] * 2}),
        ("Qwen3", {}),  # without head_dim
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Mistral", {"sliding_window": 16}),
    ],
)
def test_biases_and_sizes_are_those_that_transformers_builds(
    tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    import torch
    import transformers

    spec = ModelSpec.read(write(tmp_path, family, **changes))
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    names = [name for name, _ in model.named_parameters()]
    biases = {name.split(".", 3)[-1] for name in names if name.endswith("bias")}
    parts = "qkv" * spec.qkv_bias + "o" * spec.output_bias
    mlp = {f"mlp.{part}_proj.bias" for part in ("gate", "up", "down")} if spec.mlp_bias else set()
    assert biases == {f"self_attn.{part}_proj.bias" for part in parts} | mlp
    assert spec.qk_norm == any("q_norm" in name for name in names)
    assert spec.tied == ("lm_head.weight" not in names)
    assert spec.num_parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("family", "key", "value", "shown"),
    [
        ("Qwen3", "attention_bias", True, "attention_bias = true"),
        ("Qwen3", "mlp_bias", True, "mlp_bias = true"),
        ("Qwen2", "hidden_act", "gelu", 'hidden_act = "gelu"'),
        ("Qwen2", "use_sliding_window", True, "use_sliding_window = true"),
        ("Qwen3", "layer_types", ["full_attention", "sliding_attention"], "layer_types = sliding_attention"),
        ("Llama", "partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5"),
        ("Llama", "rope_parameters", {"partial_rotary_factor": 0.5}, "rope_parameters.partial_rotary_factor = 0.5"),
        ("Llama", "quantization_config", {"quant_method": "fp8"}, 'quantization_config = {"quant_method": "fp8"}'),
        (
            "Qwen2",
            "rope_scaling",
            {"type": "yarn", "factor": 4.0},
            "a number original_max_position_embeddings",
        ),
        ("Qwen2", "rope_scaling", {"type": "longrope", "factor": 4.0}, 'the rotary scaling "longrope"'),
        ("Qwen2", "rope_parameters", {"rope_type": "dynamic", "factor": 4.0}, 'the rotary scaling "dynamic"'),
        ("Llama", "rope_parameters", {"rope_type": "linear"}, "the rotary scaling linear without a number factor"),
    ],
)
def test_what_the_trainer_would_get_wrong_is_refused_by_name(
    tmp_path: Path, family: str, key: str, value: object, shown: str
) -> None:
    with pytest.raises(UserError) as caught:
        ModelSpec.read(write(tmp_path, family, **{key: value}))
    assert [problem.value for problem in caught.value.problems] == [str(tmp_path)]
    assert "config.json has " in str(caught.value)
    assert shown in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    write(tmp_path, "Llama", hidden_act="gelu", use_sliding_window=True, rope_parameters=LLAMA3 | {"factor": None})
    with pytest.raises(UserError) as caught:
        ModelSpec.read(tmp_path)
    assert len(caught.value.problems) == 3


def test_rotary_parameters_old_and_new(tmp_path: Path) -> None:
    new = ModelSpec.read(write(tmp_path, "Llama", rope_parameters=LLAMA3))
    assert (new.rope_theta, new.rope_scaling) == (5e5, LLAMA3)
    scaling = {name: value for name, value in LLAMA3.items() if name != "rope_theta"}
    old = ModelSpec.read(write(tmp_path, "Llama", rope_scaling=scaling, rope_theta=5e5))
    assert (old.rope_theta, old.rope_scaling) == (5e5, scaling)
    plain = ModelSpec.read(write(tmp_path, "Llama", rope_theta=2e4))
    assert (plain.rope_theta, plain.rope_scaling) == (2e4, None)


def test_every_eos_id_of_both_files(tmp_path: Path) -> None:
    write(tmp_path, "Qwen2", eos_token_id=7)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert ModelSpec.read(tmp_path).eos_ids == (7, 5)
