"""Tests of rltrain.config.files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rltrain.config.files import check_files
from rltrain.config.load import load_args

pytestmark = pytest.mark.timeout(10)


def found(workspace: Path, *overrides: str) -> list[str]:
    return [str(problem) for problem in check_files(load_args(workspace / "c.yaml", overrides).config())]


def test_a_complete_config_has_all_files_and_nothing_is_left_behind(workspace: Path) -> None:
    before = sorted(workspace.rglob("*"))
    assert found(workspace) == []
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize(
    ("directory", "rule"),
    [
        ("/proc/x", "nothing can be made in /proc"),
        ("/proc", "nothing can be made in /proc"),
        ("/dev/null", "is no directory"),
        ("/dev/null/x/y", "/dev/null is no directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_run_directory_that_cannot_be_made_is_told(workspace: Path, directory: str, rule: str) -> None:
    (problem,) = found(workspace, f"run.directory={directory}")
    assert problem.startswith("run.directory = /") and rule in problem


def test_a_run_directory_may_be_several_levels_that_are_not_there_yet(workspace: Path) -> None:
    assert found(workspace, f"run.directory={workspace}/a/b/c") == []
    assert not (workspace / "a").exists()


def test_a_run_directory_that_is_a_link_to_nothing_is_told(workspace: Path) -> None:
    (workspace / "runs").symlink_to("gone")
    (problem,) = found(workspace)
    assert "run.directory" in problem and "link to nothing" in problem


def test_data_that_is_no_file_is_told_without_waiting_for_it(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe.jsonl")
    (workspace / "zero.jsonl").symlink_to("/dev/zero")
    for name, rule in (("pipe", "is a pipe"), ("zero", "is a device")):
        (problem,) = found(workspace, f"data.sources.0.path={workspace}/{name}.jsonl")
        assert "data.sources[0].path" in problem and rule in problem
