"""What a Hugging Face model directory says about its model, read without transformers (so in milliseconds)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltrain.config.errors import Problem, UserError

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Architectures that the trainer builds, by the name in `config.json`."""
ROPE_FACTORS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Rotary scalings that the trainer builds, with the numbers that each one needs."""
BUILT: dict[str, tuple[object, ...]] = {
    "hidden_act": (None, "silu"),
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_sliding_window": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
    "quantization_config": (None,),
}
"""Values that the trainer's model code stands for. Another one would be trained as a model that it isn't."""
QWEN3_HEAD_DIM = 128
"""Of a Qwen3 config without `head_dim`; the other families divide the hidden size."""


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
        family = FAMILIES[architecture]
        problems = [
            Problem(key="model.path", rule=f"config.json has {rule}", value=str(path), hint=hint)
            for rule, hint in _not_built(family, config)
        ]
        if problems:
            raise UserError(problems)
        try:
            return cls._from_config(path, family, config)
        except KeyError as error:
            raise UserError.single("model.path", f"config.json lacks {error}", value=path) from error

    @classmethod
    def _from_config(cls, path: Path, family: str, config: Mapping[str, Any]) -> ModelSpec:
        rope = _rope(config)
        num_heads = int(config["num_attention_heads"])
        head_dim = QWEN3_HEAD_DIM if family == "qwen3" else int(config["hidden_size"]) // num_heads
        return cls(
            path=path,
            family=family,
            num_layers=int(config["num_hidden_layers"]),
            hidden_size=int(config["hidden_size"]),
            num_heads=num_heads,
            num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
            head_dim=int(config.get("head_dim") or head_dim),
            intermediate_size=int(config["intermediate_size"]),
            vocab_size=int(config["vocab_size"]),
            norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
            rope_scaling=rope if _rope_type(rope) != "default" else None,
            max_positions=int(config["max_position_embeddings"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3",
            initializer_range=float(config.get("initializer_range", 0.02)),
            eos_ids=_eos_ids(config, _read_json(path / "generation_config.json") or {}),
        )


def _not_built(family: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the config asks for and the trainer's model code doesn't do, each with what it does."""
    for name, built in BUILT.items():
        if name == "attention_bias" and family == "qwen2":
            continue  # its biases are fixed, and transformers doesn't read the key either
        if (value := config.get(name)) not in built:
            hint = "dequantise it" if name == "quantization_config" else f"supported: {json.dumps(built[-1])}"
            yield f"{name} = {json.dumps(value)}, which the trainer doesn't build", hint
    layer_types: list[str] = config.get("layer_types") or []
    if other := sorted(set(layer_types) - {"full_attention"}):
        yield f"layer_types = {', '.join(other)}, which the trainer doesn't build", "supported: full_attention"
    rope = _rope(config)
    if (share := rope.get("partial_rotary_factor")) not in BUILT["partial_rotary_factor"]:
        yield f"rope_parameters.partial_rotary_factor = {share}, which the trainer doesn't build", "supported: 1.0"
    kind = _rope_type(rope)
    if kind not in ROPE_FACTORS:
        hint = f"supported: {', '.join(ROPE_FACTORS)}"
        yield f"the rotary scaling {json.dumps(kind)}, which the trainer doesn't build", hint
    for name in ROPE_FACTORS.get(kind, ()):
        if not isinstance(rope.get(name), int | float):
            yield f"the rotary scaling {kind} without a number {name}", "add it"


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _rope_type(rope: Mapping[str, Any]) -> str:
    return rope.get("rope_type", rope.get("type", "default"))


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
