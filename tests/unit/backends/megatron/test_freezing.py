"""Which parameters a pattern stops, and patterns that can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rltrain.backends.megatron import shim
from rltrain.config.errors import UserError
from rltrain.config.model import ModelConfig, OptimizerConfig, RoleConfig

shim.install()

from rltrain.backends.megatron import freezing  # noqa: E402

PARTS = {
    "embedding": ["model.embed_tokens.weight"],
    "qkv": ["layers.0.q_proj.weight", "layers.0.k_proj.weight", "layers.0.v_proj.weight"],
    "norm": ["layers.0.norm.weight"],
}


def frozen(**patterns: Any) -> set[str]:
    role = RoleConfig(model=ModelConfig(path=Path("model")), optimizer=OptimizerConfig(learning_rate=1e-3), **patterns)
    return freezing._frozen(PARTS, role)


def test_patterns_are_searched_for_in_hugging_face_names() -> None:
    assert frozen(freeze=["norm", "embed"]) == {"embedding", "norm"}
    assert frozen(train_only=[r"[qkv]_proj"]) == {"embedding", "norm"}
    assert frozen(train_only=[r"layers\.0\."], freeze=["norm"]) == {"embedding", "norm"}


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        ({"freeze": ["norms"]}, ["actor.freeze = norms", "finds none"]),
        ({"train_only": ["q_proj"]}, ["actor.train_only", "layers.0.k_proj.weight", "one matrix"]),
        ({"freeze": [""]}, ["actor.freeze", "nothing to train"]),
    ],
)
def test_patterns_that_can_not_be_are_told(patterns: dict[str, list[str]], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        frozen(**patterns)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_pattern_must_be_a_regular_expression() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        frozen(freeze=["("])
