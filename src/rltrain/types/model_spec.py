"""What a Hugging Face model directory says about its model, read without transformers (so in milliseconds)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltrain.config.errors import UserError

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Architectures that the trainer builds, by the name in `config.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    path: Path
    family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    """Rows of the embedding, which may be more than the tokenizer's entries."""
    norm_epsilon: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    """The `rope_parameters` of another kind than `default`, e.g. Llama 3.1's."""
    max_positions: int
    tied: bool
    """The output layer is the embedding."""
    qkv_bias: bool
    qk_norm: bool
    initializer_range: float
    eos_ids: tuple[int, ...]
    """Every EOS id of `generation_config.json` and `config.json`."""

    @property
    def num_parameters(self) -> int:
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * query + 2 * key)
        attention += (query + 2 * key) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        mlp = 3 * self.hidden_size * self.intermediate_size
        layer = attention + mlp + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied else 2)
        return self.num_layers * layer + embeddings + self.hidden_size

    @classmethod
    def read(cls, path: Path) -> ModelSpec:
        """Raises UserError where the directory or the architecture can't be used."""
        config = _read_json(path / "config.json")
        if config is None:
            hint = "give a directory that a Hugging Face model was saved to"
            raise UserError.single("model.path", "has no config.json", value=path, hint=hint)
        architecture = (config.get("architectures") or ["none"])[0]
        if architecture not in FAMILIES:
            rule = f"architecture {architecture} is not supported"
            raise UserError.single("model.path", rule, value=path, hint=f"supported: {', '.join(FAMILIES)}")
        try:
            return cls._from_config(path, FAMILIES[architecture], config)
        except KeyError as error:
            raise UserError.single("model.path", f"config.json lacks {error}", value=path) from error

    @classmethod
    def _from_config(cls, path: Path, family: str, config: Mapping[str, Any]) -> ModelSpec:
        rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
        num_heads = int(config["num_attention_heads"])
        return cls(
            path=path,
            family=family,
            num_layers=int(config["num_hidden_layers"]),
            hidden_size=int(config["hidden_size"]),
            num_heads=num_heads,
            num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // num_heads),
            intermediate_size=int(config["intermediate_size"]),
            vocab_size=int(config["vocab_size"]),
            norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
            rope_scaling=rope if rope.get("rope_type", rope.get("type", "default")) != "default" else None,
            max_positions=int(config["max_position_embeddings"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or bool(config.get("attention_bias", False)),
            qk_norm=family == "qwen3",
            initializer_range=float(config.get("initializer_range", 0.02)),
            eos_ids=_eos_ids(config, _read_json(path / "generation_config.json") or {}),
        )


def _eos_ids(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    ids: dict[int, None] = {}
    for config in configs:
        found: int | list[int] | None = config.get("eos_token_id")
        listed = found if isinstance(found, list) else [] if found is None else [found]
        ids |= dict.fromkeys(listed)
    return tuple(ids)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError.single("model.path", f"can't be read: {error}", value=path) from error
