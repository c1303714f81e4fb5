"""What a Hugging Face model directory says about its model, read without transformers (so in milliseconds)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rltrain.config.errors import Problem, UserError
from rltrain.config.readable import read_json
from rltrain.types.hf_config import Family, eos_ids, not_built, rope_fields, rope_parameters
from rltrain.types.hf_families import FAMILIES
from rltrain.types.hf_numbers import out_of_range
from rltrain.types.model_parts import ExpertsSpec, LatentSpec


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
    output_bias: bool = False
    """Of the attention's output projection."""
    mlp_bias: bool = False
    activation: Literal["silu", "gelu_tanh"] = "silu"
    """Of the gate."""
    post_norms: bool = False
    """Attention and MLP have a norm behind them, too."""
    zero_centred_norms: bool = False
    """Norms multiply by 1 + weight."""
    embedding_scale: float = 1.0
    query_scale: float | None = None
    """What scores are multiplied by; head_dim ** -0.5 where None."""
    rotary_dim: int | None = None
    """Numbers of each head that are turned, the first ones; all where None."""
    rotary_interleaved: bool = False
    """Neighbours are turned together, instead of numbers half of them apart."""
    windows: tuple[int | None, ...] = ()
    """Of each layer, tokens that a token sees, itself included; of no layer where empty."""
    window_rope_theta: float | None = None
    """Base of the layers with a window, which have no scaling then."""
    latent: LatentSpec | None = None
    """In place of plain query, key and value projections."""
    experts: ExpertsSpec | None = None
    num_extra_layers: int = 0
    """Layers behind the last one that predict further tokens: neither built nor trained nor written."""

    def facts(self) -> dict[str, Any]:
        """All but the path, as JSON values."""
        facts: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        del facts["path"]
        return facts

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None

    @property
    def cache_numbers(self) -> int:
        """Numbers that an engine's cache holds of a token, in all layers."""
        latent = self.latent
        width = 2 * self.num_kv_heads * self.head_dim if latent is None else latent.key_value_rank + latent.rotary_dim
        return self.num_layers * width

    def is_sparse(self, layer: int) -> bool:
        return self.experts is not None and self.experts.sparse_layers[layer]

    @property
    def num_parameters(self) -> int:
        layers = sum(self._layer_parameters(number) for number in range(self.num_layers))
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied else 2)
        return layers + embeddings + self.hidden_size

    def _layer_parameters(self, number: int) -> int:
        attention = self._attention_parameters() if self.latent is None else self._latent_parameters(self.latent)
        experts = self.experts if self.is_sparse(number) else None
        mlp = self._mlp_parameters(self.intermediate_size) if experts is None else self._expert_parameters(experts)
        return attention + mlp + self.hidden_size * (4 if self.post_norms else 2)

    def _attention_parameters(self) -> int:
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        matrices = self.hidden_size * (2 * query + 2 * key)
        biases = (query + 2 * key) * self.qkv_bias + self.hidden_size * self.output_bias
        return matrices + biases + 2 * self.head_dim * self.qk_norm

    def _latent_parameters(self, latent: LatentSpec) -> int:
        hidden, rank = self.hidden_size, latent.key_value_rank
        query = self.num_heads * latent.query_dim
        found = hidden * query
        if latent.query_rank is not None:
            found = latent.query_rank * (hidden + 1 + query)
        found += hidden * (rank + latent.rotary_dim) + rank
        found += rank * self.num_heads * (latent.plain_dim + latent.value_dim)
        return found + self.num_heads * latent.value_dim * hidden

    def _mlp_parameters(self, inner: int) -> int:
        return 3 * self.hidden_size * inner + (2 * inner + self.hidden_size) * self.mlp_bias

    def _expert_parameters(self, experts: ExpertsSpec) -> int:
        router = experts.count * self.hidden_size + experts.count * experts.correction_bias
        shared = 3 * self.hidden_size * (experts.shared_size or 0) + self.hidden_size * experts.shared_gate
        return router + shared + experts.count * 3 * self.hidden_size * experts.intermediate_size

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
        config = dict(family.defaults) | config
        problems = [
            Problem(key="model.path", rule=f"config.json has {rule}", value=str(path), hint=hint)
            for rule, hint in (*_out_of_range(path, config), *not_built(family, config))
        ]
        if problems:
            raise UserError(problems)
        try:
            return cls._from_config(path, family, config)
        except KeyError as error:
            raise UserError.single("model.path", f"config.json lacks {error}", value=path) from error

    @classmethod
    def _from_config(cls, path: Path, family: Family, config: Mapping[str, Any]) -> ModelSpec:
        num_heads = int(config["num_attention_heads"])
        fields: dict[str, Any] = {
            "num_layers": int(config["num_hidden_layers"]),
            "hidden_size": int(config["hidden_size"]),
            "num_heads": num_heads,
            "num_kv_heads": int(config.get("num_key_value_heads") or num_heads),
            "head_dim": int(config.get("head_dim") or int(config["hidden_size"]) // num_heads),
            "intermediate_size": int(config["intermediate_size"]),
            "vocab_size": int(config["vocab_size"]),
            "norm_epsilon": float(config.get("rms_norm_eps", 1e-6)),
            **rope_fields(rope_parameters(config), config),
            "max_positions": int(config["max_position_embeddings"]),
            "tied": bool(config.get("tie_word_embeddings", False)),
            "qkv_bias": False,
            "qk_norm": False,
            "initializer_range": float(config.get("initializer_range", 0.02)),
            "eos_ids": eos_ids(config, _read_json(path / "generation_config.json") or {}),
        }
        return cls(path=path, family=family.name, **(fields | family.fields(config)))


def _out_of_range(path: Path, config: Mapping[str, Any]) -> list[tuple[str, None]]:
    generation = _read_json(path / "generation_config.json") or {}
    return [(rule, None) for rule in out_of_range(config, generation)]


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except ValueError as error:
        raise UserError.single("model.path", str(error), value=path) from error
