"""Weights that several families share: Megatron's names within a layer, each with the Hugging Face tensors that it is
made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rltrain.backends.megatron.convert.weights import Shape, Weight
from rltrain.types.model_parts import ExpertsSpec
from rltrain.types.model_spec import ModelSpec

Layer = dict[str, Weight]
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def norm(name: str, size: int) -> Weight:
    return Weight({f"{name}.weight": (size,)})


def attention(spec: ModelSpec) -> Layer:
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    hidden = spec.hidden_size

    def projections(kind: str, *columns: int) -> Weight:
        shapes: dict[str, Shape] = {
            f"self_attn.{letter}_proj.{kind}": (rows, *columns)
            for letter, rows in (("q", query), ("k", key), ("v", key))
        }
        return Weight(shapes, dim=0, groups=spec.num_kv_heads)

    found = {"self_attention.linear_qkv.weight": projections("weight", hidden)}
    if spec.qkv_bias:
        found["self_attention.linear_qkv.bias"] = projections("bias")
    if spec.qk_norm:
        found["self_attention.q_layernorm.weight"] = norm("self_attn.q_norm", spec.head_dim)
        found["self_attention.k_layernorm.weight"] = norm("self_attn.k_norm", spec.head_dim)
    found["self_attention.linear_proj.weight"] = Weight({"self_attn.o_proj.weight": (hidden, query)}, dim=1)
    if spec.output_bias:
        found["self_attention.linear_proj.bias"] = Weight({"self_attn.o_proj.bias": (hidden,)})
    return found


def mlp(spec: ModelSpec) -> Layer:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    found = gated("mlp", "mlp", hidden, inner)
    if spec.mlp_bias:
        found["mlp.linear_fc1.bias"] = Weight({"mlp.gate_proj.bias": (inner,), "mlp.up_proj.bias": (inner,)}, dim=0)
        found["mlp.linear_fc2.bias"] = Weight({"mlp.down_proj.bias": (hidden,)})
    return found


def gated(megatron: str, name: str, hidden: int, inner: int, *, parts: tuple[str, str, str] = PROJECTIONS) -> Layer:
    """An MLP's matrices; `name` and `parts` are Hugging Face's."""
    gate, up, down = (f"{name}.{part}.weight" for part in parts)
    return {
        f"{megatron}.linear_fc1.weight": Weight({gate: (inner, hidden), up: (inner, hidden)}, dim=0),
        f"{megatron}.linear_fc2.weight": Weight({down: (hidden, inner)}, dim=1),
    }


@dataclass(frozen=True)
class ExpertNames:
    """Hugging Face's."""

    experts: str
    router: str
    projections: tuple[str, str, str] = PROJECTIONS
    shared: str = ""
    shared_gate: str = ""


def mlp_or_experts(spec: ModelSpec, number: int, names: ExpertNames) -> Layer:
    if not spec.is_sparse(number):
        return mlp(spec)
    assert spec.experts is not None
    return experts(spec.experts, names, hidden=spec.hidden_size)


def experts(spec: ExpertsSpec, names: ExpertNames, *, hidden: int) -> Layer:
    found = {"mlp.router.weight": Weight({f"{names.router}.weight": (spec.count, hidden)})}
    if spec.correction_bias:
        bias: dict[str, Shape] = {f"{names.router}.e_score_correction_bias": (spec.count,)}
        found["mlp.router.expert_bias"] = Weight(bias, dtype=torch.float32)
    for number in range(spec.count):
        name = f"{names.experts}.{number}"
        found |= gated(f"mlp.experts.{number}", name, hidden, spec.intermediate_size, parts=names.projections)
    if spec.shared_size is not None:
        found |= gated("mlp.shared_experts", names.shared, hidden, spec.shared_size)
    if spec.shared_gate:
        found["mlp.shared_experts.gate_weight"] = Weight({f"{names.shared_gate}.weight": (1, hidden)})
    return found
