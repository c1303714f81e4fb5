"""Rotary frequencies against transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rltrain.backends.megatron.rotary import Rotary, inverse_frequencies
from rltrain.types.model_spec import ModelSpec

THETA = 1e6


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096,
            "mscale": 0.7, "mscale_all_dim": 1.0,
        },
    ],
)  # fmt: skip
def test_frequencies_and_angles_are_those_of_transformers(tmp_path: Path, rope: dict[str, Any]) -> None:
    """Frequencies to a few fp32 roundings (3e-7), which at position 1000 are 3e-4 of an angle."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, max_position_embeddings=131072,
        rope_parameters=rope | {"rope_theta": THETA},
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["LlamaForCausalLM"]}))
    spec = ModelSpec.read(tmp_path)
    theirs = LlamaRotaryEmbedding(config)
    torch.testing.assert_close(inverse_frequencies(spec), theirs.inv_freq, rtol=3e-7, atol=0)
    positions = torch.arange(1000)
    (found,) = Rotary(spec, device=torch.device("cpu"))(positions, dtype=torch.float32)
    cosines, sines = theirs(torch.zeros(1), positions[None])
    torch.testing.assert_close(found.cosines[:, 0], cosines[0], rtol=0, atol=3e-4)
    torch.testing.assert_close(found.sines[:, 0], sines[0], rtol=0, atol=3e-4)


def test_angles_stay_fp32_when_the_model_is_cast(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=64, num_attention_heads=2).to_dict() | {"architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rotary = Rotary(ModelSpec.read(tmp_path), device=torch.device("cpu"))
    (before,) = rotary(torch.tensor([511]), dtype=torch.float32)
    (after,) = rotary.to(torch.bfloat16)(torch.tensor([511]), dtype=torch.float32)
    assert torch.equal(before.cosines, after.cosines)
    assert torch.equal(before.sines, after.sines)
