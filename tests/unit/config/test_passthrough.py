"""Tests of rltrain.config.passthrough."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rltrain.config.load import load_args
from rltrain.config.passthrough import (
    DDP,
    OPTIMIZER,
    TRANSFORMER,
    VLLM,
    Target,
    check_passthrough,
    dataclass_fields,
    known_fields,
)


def test_fields_are_read_from_the_source_file(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("class A:\n    x: int = 1\n    y = 2\n    def f(self): ...\nclass B:\n    z: int\n")
    assert dataclass_fields(source, "A") == {"x"}
    assert dataclass_fields(source, "C") == frozenset()
    assert dataclass_fields(tmp_path / "gone.py", "A") == frozenset()


def test_fields_that_the_libraries_have_pass_and_neither_is_imported(workspace: Path) -> None:
    loaded = set(sys.modules)
    overrides = [
        "rollout.vllm={enforce_eager: false, max_num_seqs: 8, enable_log_requests: true}",
        "actor.megatron={transformer: {deterministic_mode: true}, ddp: {bucket_size: 1}}",
    ]
    assert check_passthrough(load_args(workspace / "c.yaml", overrides).config()) == []
    assert not {"vllm", "megatron"} & (set(sys.modules) - loaded)


def test_rates_of_megatrons_own_scheduler_are_refused(workspace: Path) -> None:
    """rltrain sets every group's rate, so they would be read by nothing."""
    overrides = ["actor.megatron.optimizer={decoupled_lr: 0.1, decoupled_min_lr: 0.0}"]
    problems = check_passthrough(load_args(workspace / "c.yaml", overrides).config())
    assert [problem.key.rpartition(".")[2] for problem in problems] == ["decoupled_lr", "decoupled_min_lr"]
    assert all("can't be changed" in problem.rule for problem in problems)


def test_dropout_is_refused(workspace: Path) -> None:
    """Engine and trainer would score under different models; our attention has none at all."""
    overrides = ["actor.megatron.transformer={hidden_dropout: 0.1, attention_dropout: 0.1}"]
    problems = check_passthrough(load_args(workspace / "c.yaml", overrides).config())
    assert [problem.key.rpartition(".")[2] for problem in problems] == ["hidden_dropout", "attention_dropout"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor.megatron.transformer={attention_softmax_in_fp32: true}", ["attention_softmax_in_fp32", "packed"]),
        ("actor.megatron.transformer={masked_softmax_fusion: true}", ["masked_softmax_fusion", "attention"]),
        ("actor.megatron.transformer={apply_rope_fusion: true}", ["apply_rope_fusion", "rotary"]),
        ("actor.megatron.transformer={cross_entropy_loss_fusion: true}", ["cross_entropy_loss_fusion", "log-probs"]),
        ("actor.megatron.transformer={softmax_scale: 0.5}", ["softmax_scale", "directory"]),
        ("actor.megatron.transformer={fp8: hybrid}", ["fp8", "TransformerEngine"]),
        ("actor.megatron.optimizer={loss_scale: 2.0}", ["loss_scale", "float16"]),
        ("actor.megatron.ddp={average_in_collective: true}", ["average_in_collective", "divides"]),
        ("rollout.vllm={speculative_config: {}}", ["speculative_config", "log-probs"]),
        ("rollout.vllm={hf_overrides: {}}", ["hf_overrides", "directory"]),
    ],
)
def test_what_nothing_reads_is_refused_with_the_reason(workspace: Path, override: str, words: list[str]) -> None:
    (problem,) = check_passthrough(load_args(workspace / "c.yaml", [override]).config())
    assert all(word in str(problem) for word in words), str(problem)


@pytest.mark.parametrize("target", [VLLM, TRANSFORMER, OPTIMIZER, DDP], ids=lambda target: target.key)
def test_lists_name_only_fields_of_the_installed_libraries_and_each_once(target: Target) -> None:
    lists = [set(target.taken), set(target.fixed), set(target.unread)]
    assert set.union(*lists) <= known_fields(target)
    assert len(set.union(*lists)) == sum(map(len, lists))
