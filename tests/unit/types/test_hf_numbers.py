"""Tests of rltrain.types.hf_numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rltrain.types.hf_numbers import out_of_range

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "tie_word_embeddings": True,
    "eos_token_id": [2, 63],
    "head_dim": None,
}


def test_a_sound_config_passes() -> None:
    assert list(out_of_range(CONFIG, {})) == []
    assert list(out_of_range(CONFIG, {"eos_token_id": 3})) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers = 1000000000000"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers = Infinity"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"hidden_size": True}, "hidden_size = true"),
        ({"hidden_size": 16.5}, "hidden_size = 16.5"),
        ({"vocab_size": -1, "eos_token_id": None}, "vocab_size = -1"),
        ({"head_dim": "x" * 1000}, "head_dim ="),
        ({"num_key_value_heads": 3}, "doesn't divide"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = NaN"),
        ({"rope_theta": 0}, "rope_theta = 0"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"eos_token_id": 64}, "eos_token_id 64, which must be an id of 0 to 63"),
        ({"eos_token_id": ["x"]}, 'eos_token_id "x"'),
        ({"eos_token_id": [None]}, "eos_token_id null"),
    ],
)
def test_numbers_that_no_model_has_are_told(change: dict[str, Any], words: str) -> None:
    (found,) = out_of_range(CONFIG | change, {})
    assert words in found
    assert len(found) < 200


def test_eos_ids_of_the_generation_config_count_as_well() -> None:
    (found,) = out_of_range(CONFIG, {"eos_token_id": [2, -1]})
    assert "eos_token_id -1" in found
