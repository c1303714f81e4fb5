"""Megatron's parameters from Hugging Face tensors and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rltrain.backends.megatron.convert.tensors import hf_names, join, split
from rltrain.types.model_spec import ModelSpec

SPEC = ModelSpec(
    path=Path("model"), family="qwen2", num_layers=2, hidden_size=6, num_heads=4, num_kv_heads=2, head_dim=3,
    intermediate_size=5, vocab_size=96, norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=None, max_positions=64,
    tied=True, qkv_bias=True, qk_norm=False, initializer_range=0.02, eos_ids=(1,),
)  # fmt: skip


def test_names_of_a_layer() -> None:
    assert hf_names("decoder.layers.11.self_attention.linear_qkv.bias", SPEC) == (
        "model.layers.11.self_attn.q_proj.bias",
        "model.layers.11.self_attn.k_proj.bias",
        "model.layers.11.self_attn.v_proj.bias",
    )
    assert hf_names("decoder.final_layernorm.weight", SPEC) == ("model.norm.weight",)


@pytest.mark.parametrize("shape", [(6,), ()])
def test_rows_lie_by_groups_of_heads(shape: tuple[int, ...]) -> None:
    """Two groups, each of two query heads, a key head and a value head of three rows."""

    def rows(heads: list[str]) -> torch.Tensor:
        numbers = [100 * ord(head[0]) + 10 * int(head[1]) + row for head in heads for row in range(3)]
        return torch.tensor(numbers).view(-1, *[1] * len(shape)).expand(-1, *shape).contiguous()

    parts = [rows(["q0", "q1", "q2", "q3"]), rows(["k0", "k1"]), rows(["v0", "v1"])]
    joined = join(parts, SPEC)
    assert torch.equal(joined, rows(["q0", "q1", "k0", "v0", "q2", "q3", "k1", "v1"]))
    assert all(torch.equal(one, other) for one, other in zip(split(joined, 3, SPEC), parts, strict=True))


def test_gate_lies_above_up() -> None:
    gate, up = torch.zeros(5, 6), torch.ones(5, 6)
    joined = join([gate, up], SPEC)
    assert torch.equal(joined, torch.cat([gate, up]))
    assert [part.sum().item() for part in split(joined, 2, SPEC)] == [0, 30]
