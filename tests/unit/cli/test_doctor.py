"""Tests of rltrain.cli.doctor as a command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rltrain.cli.doctor import doctor


@pytest.fixture
def app() -> typer.Typer:
    application = typer.Typer()
    application.command()(doctor)
    return application


def test_this_environment_needs_no_mending(app: typer.Typer) -> None:
    result = CliRunner().invoke(app)
    assert result.exit_code == 0, result.output
    assert version("ray") in result.output


def test_a_torchvision_for_another_torch_ends_with_1_and_names_the_way_out(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "torchvision-0.1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Name: torchvision\nVersion: 0.1.0\nRequires-Dist: torch==1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = CliRunner().invoke(app)
    assert result.exit_code == 1
    assert "uninstall -y torchvision" in result.output
