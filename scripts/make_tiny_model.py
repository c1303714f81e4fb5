"""Writes `examples/tiny-qwen3`: config and tokenizer of the quick start's model, byte for byte the same each time.

Usage: python scripts/make_tiny_model.py [DIRECTORY]

There are no weights: the quick start draws them (`actor.model.init: random`). Every character is a token, and
there are as many as the embedding has rows, so that each id that the model can draw has a text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

DIRECTORY = Path(__file__).resolve().parent.parent / "examples" / "tiny-qwen3"
CHARACTERS = "0123456789+=<> abcdefghijklmnopqrstuvwxyz!\"#$%&'()*,-./:;?@[]"
SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>")
VOCABULARY_SIZE = 64

MODEL: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "dtype": "float32",
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 256,
    "layer_types": ["full_attention", "full_attention"],
    "max_position_embeddings": 64,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY_SIZE,
}
GENERATION: dict[str, Any] = {"eos_token_id": 1, "pad_token_id": 0}
TOKENIZER_CONFIG: dict[str, Any] = {
    "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    "clean_up_tokenization_spaces": False,
    "eos_token": "<eos>",
    "model_max_length": MODEL["max_position_embeddings"],
    "pad_token": "<pad>",
    "padding_side": "left",
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
}


def tokenizer() -> Tokenizer:
    """A token a character; ids 0 to 2 are special."""
    tokens = [*SPECIAL_TOKENS, *CHARACTERS]
    assert len(tokens) == VOCABULARY_SIZE
    result = Tokenizer(models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token="<unk>"))
    result.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    result.decoder = decoders.Fuse()
    result.add_special_tokens(list(SPECIAL_TOKENS))
    return result


def write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", MODEL),
        ("generation_config.json", GENERATION),
        ("tokenizer_config.json", TOKENIZER_CONFIG),
    ):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (directory / "tokenizer.json").write_text(tokenizer().to_str(pretty=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY)
