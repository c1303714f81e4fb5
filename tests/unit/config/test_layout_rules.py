"""Layouts that no run can have, each told before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rltrain.config.layout_rules import layout_problems
from rltrain.config.model import ParallelConfig


@dataclass(frozen=True)
class Experts:
    count: int = 8


@dataclass(frozen=True)
class Model:
    num_layers: int = 12
    num_heads: int = 8
    num_kv_heads: int = 4
    intermediate_size: int = 64
    experts: Experts | None = None


def found(model: Model | None = Model(), **sizes: Any) -> list[str]:
    return [str(problem) for problem in layout_problems(ParallelConfig(**sizes), model)]


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"tensor": 4, "sequence": True, "pipeline": 3, "virtual_pipeline": 2, "context": 3, "data": 2},
        {"pipeline": 4, "first_stage_layers": 2, "last_stage_layers": 4},
        {"pipeline": 2, "first_stage_layers": 5, "last_stage_layers": 7},
        {"context": 2, "shard_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True},
    ],
)
def test_layouts_that_fit_are_let_through(sizes: dict[str, Any]) -> None:
    assert found(**sizes) == []


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"sequence": True}, ["sequence = true", "tensor is 1"]),
        ({"virtual_pipeline": 2}, ["virtual_pipeline = 2", "pipeline is 1"]),
        ({"last_stage_layers": 3}, ["last_stage_layers = 3", "pipeline is 1"]),
        ({"shard_optimizer": True}, ["shard_optimizer", "data x context is 1"]),
        ({"data": 2, "overlap_param_gather": True, "overlap_grad_reduce": True}, ["needs actor.parallel.shard_opt"]),
        ({"tensor": 3}, ["tensor = 3", "8 attention heads", "64 intermediate size", "1 or 2 or 4"]),
        ({"tensor": 8}, ["tensor = 8", "4 key-value heads"]),
        ({"pipeline": 5}, ["pipeline = 5", "12 layers"]),
        ({"pipeline": 24}, ["pipeline = 24", "12 layers"]),
        ({"pipeline": 4, "first_stage_layers": 1}, ["3 stages", "11 layers"]),
        ({"pipeline": 2, "first_stage_layers": 5, "last_stage_layers": 5}, ["first_stage_layers = 5", "12"]),
        ({"pipeline": 2, "virtual_pipeline": 4}, ["virtual_pipeline = 4", "6"]),
        ({"data": 2, "expert": 2}, ["expert = 2", "has none"]),
        ({"expert_dispatch": "allgather"}, ["expert_dispatch = allgather", "has none"]),
    ],
)
def test_cfg_05_what_does_not_divide_is_told_with_the_numbers(sizes: dict[str, Any], words: list[str]) -> None:
    problems = found(**sizes)
    assert len(problems) == 1, problems
    assert all(word in problems[0] for word in words), problems


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"tensor": 2}, ["sequence = false", "experts"]),
        ({"pipeline": 2, "expert_dispatch": "allgather"}, ["expert_dispatch = allgather", "pipeline"]),
        ({"data": 3, "expert": 3}, ["expert = 3", "8 experts"]),
        ({"data": 2, "expert": 4}, ["expert (4) x expert_tensor (1)", "= 2"]),
        ({"tensor": 2, "sequence": True, "expert": 2}, ["expert (2) x expert_tensor (2)", "expert_tensor: 1"]),
    ],
)
def test_experts_are_spread_over_ranks_that_there_are(sizes: dict[str, Any], words: list[str]) -> None:
    problems = found(Model(experts=Experts()), **sizes)
    assert len(problems) == 1, problems
    assert all(word in problems[0] for word in words), problems


def test_an_unreadable_model_hides_no_other_problem() -> None:
    assert len(found(None, sequence=True)) == 1
