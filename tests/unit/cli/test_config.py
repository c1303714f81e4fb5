"""Tests of rltrain.cli.config."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from typer.testing import CliRunner

from rltrain.cli.app import app


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["config", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_show_prints_what_an_override_resolves_to(workspace: Path) -> None:
    """CLI-06."""
    shown = yaml.safe_load(run("show", str(workspace / "c.yaml"), "rollout.max_tokens=3"))
    assert shown["rollout"]["max_tokens"] == 3
    assert shown["run"]["directory"] == str(workspace / "runs")
    assert shown["actor"]["optimizer"]["beta2"] == 0.999


def test_schema_is_json_and_a_key_is_explained(workspace: Path) -> None:
    assert set(json.loads(run("schema"))["properties"]) >= {"run", "data", "rollout", "base"}
    assert "1e-08" in run("schema", "--key", "actor.optimizer")


def test_a_key_that_does_not_exist_is_refused() -> None:
    result = CliRunner().invoke(app, ["config", "schema", "--key", "actor.optimiser"])
    assert result.exit_code == 2
    assert "did you mean actor.optimizer?" in result.stderr


def test_diff_tells_key_by_key(workspace: Path) -> None:
    (workspace / "d.yaml").write_text("base: c.yaml\nrun: {steps: 11}\n")
    assert run("diff", str(workspace / "c.yaml"), str(workspace / "d.yaml")) == "run.steps: 10 -> 11\n"
