"""What all families' config.json have in common: places that differ between releases, and what isn't built."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
Allowed = Mapping[str, tuple[object, ...]]
ROPE_FACTORS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}
"""Rotary scalings that the trainer builds, with the numbers that each one needs."""
BUILT: dict[str, tuple[object, ...]] = {
    "hidden_act": (None, "silu"),
    "attention_bias": (None, False),
    "qkv_bias": (None,),
    "mlp_bias": (None, False),
    "use_sliding_window": (None, False),
    "sliding_window": (None,),
    "partial_rotary_factor": (None, 1, 1.0),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "use_bidirectional_attention": (None, False),
    "pretraining_tp": (None, 1),
    "router_jitter_noise": (None, 0, 0.0),
    "quantization_config": (None,),
}
"""Values that the trainer's model code stands for. Another one would be trained as a model that it isn't."""
REASONS = {
    "quantization_config": "dequantise it",
    "attn_logit_softcapping": "supported: null; no attention kernel of torch caps scores",
    "final_logit_softcapping": "supported: null; log-probs are of uncapped logits",
    "sliding_window": "supported: null",
}
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Family:
    """How an architecture's config.json is read."""

    name: str
    """The table of weights it has."""
    fields: Callable[[Config], dict[str, Any]]
    """Those of a ModelSpec that aren't read alike for all families."""
    reads: frozenset[str] = frozenset()
    """Keys of `BUILT` that `fields` heeds, or that transformers doesn't read for this family.

    `layer_types` where layers may have windows.
    """
    allowed: Allowed = field(default_factory=dict[str, tuple[object, ...]])
    """Values of more keys, as in `BUILT`."""
    defaults: Config = field(default_factory=dict[str, Any])
    """What transformers takes where a key is missing, as far as it matters."""
    more: Callable[[Config], Iterator[tuple[str, str]]] = lambda _: iter(())
    """More of what `not_built` finds."""


def not_built(family: Family, config: Config) -> Iterator[tuple[str, str]]:
    """What the config asks for and the trainer's model code doesn't do, each with a way out."""
    allowed = {name: values for name, values in BUILT.items() if name not in family.reads} | dict(family.allowed)
    for name, values in allowed.items():
        if (value := config.get(name)) not in values:
            hint = REASONS.get(name, f"supported: {json.dumps(values[-1])}")
            yield f"{name} = {json.dumps(value)}, which the trainer doesn't build", hint
    known = [FULL, SLIDING] if "layer_types" in family.reads else [FULL]
    if other := sorted(set(config.get("layer_types") or []) - set(known)):
        yield f"layer_types = {', '.join(other)}, which the trainer doesn't build", f"supported: {', '.join(known)}"
    yield from family.more(config)
    for rope in rope_kinds(config):
        yield from _rope_not_built(rope, partial="partial_rotary_factor" in family.reads)


def _rope_not_built(rope: Config, *, partial: bool) -> Iterator[tuple[str, str]]:
    share = rope.get("partial_rotary_factor")
    if not partial and share not in BUILT["partial_rotary_factor"]:
        yield f"rope_parameters.partial_rotary_factor = {share}, which the trainer doesn't build", "supported: 1.0"
    kind = rope_type(rope)
    if kind not in ROPE_FACTORS:
        hint = f"supported: {', '.join(ROPE_FACTORS)}"
        yield f"the rotary scaling {json.dumps(kind)}, which the trainer doesn't build", hint
    for name in ROPE_FACTORS.get(kind, ()):
        if not isinstance(rope.get(name), int | float):
            yield f"the rotary scaling {kind} without a number {name}", "add it"


def rope_parameters(config: Config) -> Config:
    """Of transformers 5, whose `rope_parameters` hold the base too, or older."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def rope_kinds(config: Config) -> list[Config]:
    """More than one where layers of different kinds turn differently."""
    rope = rope_parameters(config)
    by_layer = [rope[kind] for kind in (FULL, SLIDING) if rope.get(kind)]
    return by_layer or [rope]


def rope_type(rope: Config) -> str:
    return rope.get("rope_type", rope.get("type", "default"))


def rope_fields(rope: Config, config: Config) -> dict[str, Any]:
    return {
        "rope_theta": float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        "rope_scaling": rope if rope_type(rope) != "default" else None,
    }


def eos_ids(*configs: Config) -> tuple[int, ...]:
    ids: dict[int, None] = {}
    for config in configs:
        found: int | list[int] | None = config.get("eos_token_id")
        listed = found if isinstance(found, list) else [] if found is None else [found]
        ids |= dict.fromkeys(listed)
    return tuple(ids)
