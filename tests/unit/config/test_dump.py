"""Tests of rltrain.config.dump."""

from __future__ import annotations

from pathlib import Path

from rltrain.config.dump import differences, dump_yaml
from rltrain.config.load import load_args


def test_what_is_dumped_loads_to_the_same_config(workspace: Path) -> None:
    overrides = [
        "actor.optimizer.epsilon=1e-9",
        'data.prompt_key="1e-6"',
        'data.label_key="on"',
        'rollout.stop=["0x1", "\\n"]',
    ]
    args = load_args(workspace / "c.yaml", overrides)
    again = workspace / "again.yaml"
    again.write_text(dump_yaml(args))
    assert load_args(again).config() == args.config()


def test_sec_03_secrets_are_redacted_and_vocabulary_tokens_are_not(workspace: Path) -> None:
    overrides = [
        "cluster.env={NOTE: hf_abcdefghijklmnopqrstuvwxyz}",
        "data.template={kind: chat, kwargs: {num_memory_tokens: 7}}",
    ]
    text = dump_yaml(load_args(workspace / "c.yaml", overrides))
    assert "hf_abc" not in text
    assert "num_memory_tokens: 7" in text


def test_differences_are_told_key_by_key(workspace: Path) -> None:
    path = workspace / "c.yaml"
    found = differences(load_args(path), load_args(path, ["run.steps=11"]))
    assert found == [("run.steps", "10", "11")]
