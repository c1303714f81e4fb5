from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.errors import UserError
from rltrain.config.namespace import Args
from rltrain.config.tree import Config
from rltrain.telemetry.run_directory import MARKER, RunDirectory, check_name, default_name, default_named

MakeArgs = Callable[..., Args]


@pytest.fixture
def make_args(tmp_path: Path) -> MakeArgs:
    def make(name: str | None = "first", **sections: Any) -> Args:
        tree: dict[str, Any] = {
            "run": {"name": name, "directory": tmp_path / "runs", "steps": 1},
            "data": {"sources": [{"path": tmp_path / "data.jsonl"}]},
            "reward": {"parts": {"exact": {"kind": "exact"}}},
            "rollout": {"prompts_per_step": 1, "samples_per_prompt": 2},
            "actor": {"model": {"path": tmp_path / "model"}, "optimizer": {"learning_rate": 1e-6}},
        }
        return Args(Config(**(tree | sections)), config_path=tmp_path / "my config.yaml")

    return make


def test_a_new_run_has_its_config_its_environment_and_its_folders(make_args: MakeArgs, tmp_path: Path) -> None:
    run = RunDirectory.create(make_args(), overwrite=False)
    assert run.path == tmp_path / "runs" / "first"
    assert "learning_rate" in run.config.read_text()
    facts = json.loads(run.environment.read_text())
    assert facts["packages"]["rltrain"]
    assert facts["cpus"] >= 1
    assert run.logs == run.path / "logs" / "1"
    for directory in (run.logs, run.rollout(3).parent, run.export(3).parent):
        assert directory.is_dir()
    assert (run.rollout(3).name, run.export(3).name) == ("step_3.parquet", "step_3")
    run.release()


def test_the_default_name_is_the_configs_stem_and_the_utc_time() -> None:
    moment = datetime(2026, 12, 1, 3, 4, 5, tzinfo=UTC)
    assert default_name(Path("/x/quickstart.yaml"), now=moment) == "quickstart-20261201-030405"
    assert default_name(Path("/x/.my config (2).yaml"), now=moment) == "my-config-2--20261201-030405"


def test_without_a_name_the_default_is_taken(make_args: MakeArgs) -> None:
    run = RunDirectory.create(make_args(None), overwrite=False)
    assert run.name.startswith("my-config-2")
    run.release()


def test_cli_01_an_existing_directory_is_refused_and_left_untouched(make_args: MakeArgs) -> None:
    run = RunDirectory.create(make_args(), overwrite=False)
    run.metrics.write_text("precious")
    run.release()
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with pytest.raises(UserError) as refusal:
        RunDirectory.create(make_args(), overwrite=False)
    assert str(run.path) in str(refusal.value)
    assert "--overwrite" in str(refusal.value)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_cli_01_overwrite_removes_that_runs_directory_alone(make_args: MakeArgs) -> None:
    first = RunDirectory.create(make_args(), overwrite=False)
    other = RunDirectory.create(make_args("other"), overwrite=False)
    for run in (first, other):
        run.metrics.write_text("old")
        run.release()
    again = RunDirectory.create(make_args(), overwrite=True)
    assert not again.metrics.exists()
    assert again.config.exists()
    assert other.metrics.read_text() == "old"
    again.started(make_args(), step=0)
    assert sorted(path.name for path in again.path.parent.iterdir()) == ["first", "other"]
    again.release()


def test_a_refused_start_brings_the_earlier_run_back(make_args: MakeArgs) -> None:
    first = RunDirectory.create(make_args(), overwrite=False)
    first.metrics.write_text("precious")
    first.release()
    again = RunDirectory.create(make_args(), overwrite=True)
    again.metrics.write_text("nothing yet")
    again.release()
    again.discard()
    assert first.metrics.read_text() == "precious"
    assert [path.name for path in first.path.parent.iterdir()] == ["first"]


def test_a_directory_that_cannot_be_filled_brings_the_earlier_run_back(
    make_args: MakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RunDirectory.create(make_args(), overwrite=False)
    first.metrics.write_text("precious")
    first.release()

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rltrain.telemetry.run_directory.write_text", full)
    with pytest.raises(UserError, match="No space left"):
        RunDirectory.create(make_args(), overwrite=True)
    assert first.metrics.read_text() == "precious"
    assert [path.name for path in first.path.parent.iterdir()] == ["first"]


def test_a_taken_name_is_told_beforehand_and_nothing_is_touched(make_args: MakeArgs) -> None:
    check_name(make_args(), overwrite=False)
    run = RunDirectory.create(make_args(), overwrite=False)
    with pytest.raises(UserError, match="another process is running in"):
        check_name(make_args(), overwrite=True)
    run.release()
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    check_name(make_args(), overwrite=True)
    check_name(make_args(None), overwrite=False)
    with pytest.raises(UserError, match="--overwrite"):
        check_name(make_args(), overwrite=False)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_cli_01_overwrite_leaves_a_directory_alone_that_is_not_ours(make_args: MakeArgs, tmp_path: Path) -> None:
    thesis = tmp_path / "runs" / "first" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    with pytest.raises(UserError, match="was not made by rltrain"):
        RunDirectory.create(make_args(), overwrite=True)
    assert thesis.read_text() == "years of work"


def test_overwrite_follows_no_link(make_args: MakeArgs, tmp_path: Path) -> None:
    other = RunDirectory.create(make_args("other"), overwrite=False)
    other.release()
    (tmp_path / "runs" / "first").symlink_to(other.path)
    with pytest.raises(UserError, match="was not made by rltrain"):
        RunDirectory.create(make_args(), overwrite=True)
    assert other.config.exists()


def test_a_directory_that_another_process_works_in_is_refused_even_with_overwrite(make_args: MakeArgs) -> None:
    run = RunDirectory.create(make_args(), overwrite=False)
    run.release()
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(run.path / MARKER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match="another process is running in"):
            RunDirectory.create(make_args(), overwrite=True)
        assert run.config.exists()
        assert process.stdin is not None
        process.stdin.close()
    RunDirectory.create(make_args(), overwrite=True).release()


def test_the_lock_is_held_while_the_run_goes_on(make_args: MakeArgs) -> None:
    run = RunDirectory.create(make_args(), overwrite=False)
    with pytest.raises(UserError, match="another process is running in"):
        RunDirectory.create(make_args(), overwrite=True)
    run.release()


def test_a_place_that_cannot_be_written_is_a_user_error(make_args: MakeArgs, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UserError, match=r"run\.directory"):
        RunDirectory.create(make_args(), overwrite=False)


def test_sec_03_no_secret_reaches_the_directory(make_args: MakeArgs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "SECRET123")
    monkeypatch.setenv("VLLM_API_KEY", "SECRET456")
    monkeypatch.setenv("OMP_NOTE", "see SECRET123")
    monkeypatch.setattr(sys, "argv", ["rltrain", "train", "cluster.env.MY_TOKEN=SECRET789", "run.name=SECRET123"])
    env = {"MY_TOKEN": "SECRET789", "NOTE": "SECRET123", "num_memory_tokens": "7"}
    run = RunDirectory.create(make_args(cluster={"env": env}), overwrite=False)
    written = "".join(path.read_text() for path in run.path.rglob("*") if path.is_file())
    assert "OMP_NOTE" in written
    assert "num_memory_tokens" in written
    for secret in ("SECRET123", "SECRET456", "SECRET789"):
        assert secret not in written
    run.release()


def test_the_lock_is_not_inherited_by_other_programs(make_args: MakeArgs) -> None:
    """A worker that outlives the driver must not keep the directory locked."""
    run = RunDirectory.create(make_args(), overwrite=False)
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        run.release()
        assert worker.poll() is None
        RunDirectory.create(make_args(), overwrite=True).release()


def test_a_reopened_run_gets_logs_of_its_own_and_keeps_all_else_until_it_has_started(make_args: MakeArgs) -> None:
    first = RunDirectory.create(make_args(), overwrite=False)
    for step in (1, 2, 3):
        first.rollout(step).write_text("samples")
    first.metrics.write_text("precious")
    first.release()
    before = {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file()}
    again = RunDirectory.reopen(first.path)
    assert again.logs == first.path / "logs" / "2"
    assert {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file()} == before
    again.started(make_args(rollout={"prompts_per_step": 1, "samples_per_prompt": 4}), step=2)
    assert [first.rollout(step).exists() for step in (1, 2, 3)] == [True, True, False]
    assert "samples_per_prompt: 4" in again.config.read_text()
    assert again.metrics.read_text() == "precious"
    again.release()


def test_a_refused_resume_takes_nothing_but_its_own_logs(make_args: MakeArgs) -> None:
    first = RunDirectory.create(make_args(), overwrite=False)
    first.metrics.write_text("precious")
    first.release()
    before = sorted(first.path.rglob("*"))
    again = RunDirectory.reopen(first.path)
    (again.logs / "driver.log").write_text("tried")
    again.discard()
    again.release()
    assert sorted(first.path.rglob("*")) == before


def test_two_processes_do_not_go_on_with_one_run(make_args: MakeArgs) -> None:
    run = RunDirectory.create(make_args(), overwrite=False)
    with pytest.raises(UserError, match="another process is running in"):
        RunDirectory.reopen(run.path)
    assert [path.name for path in (run.path / "logs").iterdir()] == ["1"]
    run.release()
    RunDirectory.reopen(run.path).release()


def test_only_a_run_is_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not made by rltrain"):
        RunDirectory.reopen(tmp_path)


def test_runs_without_a_name_of_their_own_are_found_newest_first(make_args: MakeArgs, tmp_path: Path) -> None:
    names = ["my-config-20261201-030405", "my-config-20261130-030405", "my-config-x", "other-20261201-030405"]
    for name in names:
        RunDirectory.create(make_args(name), overwrite=False).release()
    (tmp_path / "runs" / "my-config-20261202-030405").mkdir()
    assert [path.name for path in default_named(make_args(None))] == names[:2]
