"""Families in a real vLLM engine: the names that the trainer sends are those it needs, and it computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tests.integration.megatron_families as families
from rltrain.types.errors import RunError
from rltrain.types.model_spec import ModelSpec
from tests.integration.vllm_setup import TOLERANCE, Reference, engine_setup, running_engine

CANARY = np.arange(3, 40, dtype=np.int32)
SIZES: dict[str, Any] = {"hidden_size": 128, "vocab_size": 512, "head_dim": 32, "sliding_window": 7}
LATENT: dict[str, Any] = SIZES | {
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "moe_intermediate_size": 64,
}  # fmt: skip
"""All that vLLM's latent attention on a CPU takes."""
EXPERTS: dict[str, Any] = SIZES | {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
CASES = {
    "mistral": SIZES,
    "glm4": SIZES,
    "gemma3": SIZES,
    "mixtral": SIZES | {"intermediate_size": 64},  # vLLM's experts on a CPU want multiples of 32
    "qwen2-moe": EXPERTS,
    "qwen3-moe": EXPERTS,
    "deepseek-v2": LATENT,
    "deepseek-v3": LATENT,
}


class SavedReference(Reference):
    """Its weights under the names in files, which aren't those of its modules."""

    def __init__(self, model: torch.nn.Module, path: Path) -> None:
        super().__init__(model)
        self._path = path

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        self.model.save_pretrained(self._path)
        yield from sorted(load_file(self._path / "model.safetensors").items())


@pytest.mark.parametrize("name", CASES)
def test_an_engine_computes_what_transformers_does_after_each_sync(tmp_path: Path, name: str) -> None:
    from rltrain.backends.megatron.convert.tensors import model_weights

    known = families.MODELS[name].fields.keys() | {"hidden_size", "vocab_size", "intermediate_size"}
    sizes = {key: value for key, value in CASES[name].items() if key in known}
    reference = SavedReference(families.save(tmp_path, name, **sizes), tmp_path)
    sent = {part for weight in model_weights(ModelSpec.read(tmp_path)).values() for part in weight.parts}
    assert sent == {tensor_name for tensor_name, _ in reference.tensors()}
    with running_engine(engine_setup(tmp_path), reference) as engine:
        left_out = next(part for part in sorted(sent, reverse=True) if "experts.3." in part or "up_proj" in part)
        with pytest.raises(RunError, match=left_out.replace(".", r"\.")):
            engine.sync(reference.sender(without=left_out))
        for seed in (1, 2):
            engine.sync()
            difference = np.abs(engine.score(CANARY) - reference.logprobs(CANARY.tolist())).max()
            assert difference < TOLERANCE
            reference.perturb(seed)
