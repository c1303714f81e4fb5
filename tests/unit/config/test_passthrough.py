"""Tests of rltrain.config.passthrough."""

from __future__ import annotations

import sys
from pathlib import Path

from rltrain.config.load import load_args
from rltrain.config.passthrough import check_passthrough, dataclass_fields


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
        "actor.megatron={transformer: {recompute_granularity: full, deterministic_mode: true}, ddp: {bucket_size: 1}}",
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
