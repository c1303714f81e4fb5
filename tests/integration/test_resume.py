"""A run that is stopped and gone on with is the run that was never stopped, bit for bit."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rltrain.telemetry.rollout_files import read_rollout
from tests.integration import runs
from tests.small_disk import fill, small_disk

STEPS = 40
SETTINGS = (
    "run.deterministic=true",
    "rollout.prompts_per_step=4",  # of ten prompts: epochs end within steps
    "rollout.samples_per_prompt=2",
    "algorithm.kl.kind=k3",
    "algorithm.kl.coefficient=0.01",
    "actor.optimizer.learning_rate=1e-3",
    "actor.optimizer.warmup_steps=10",
    "actor.optimizer.schedule.kind=cosine",
    "eval.every=7",
    "checkpoint.every=3",
)
NOISE = ("time/", "memory/", "throughput/")
"""Metrics of the machine."""


def settings(steps: int = STEPS) -> tuple[str, ...]:
    return *SETTINGS, f"run.steps={steps}", f"actor.optimizer.schedule.decay_steps={STEPS}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> runs.Finished:
    """Never stopped."""
    finished = runs.train(tmp_path_factory.mktemp("whole") / "run", *settings())
    assert finished.code == 0, finished.output
    return finished


def computed(run: Path, steps: range) -> list[dict[str, Any]]:
    """What the lines of these steps say of training."""
    lines = [line for line in runs.read_metrics(run) if line["step"] in steps]
    return [{key: value for key, value in line.items() if not key.startswith(NOISE)} for line in lines]


def weights(run: Path) -> bytes:
    return (run / "hf" / f"step_{STEPS}" / "model-00001-of-00001.safetensors").read_bytes()


def drawn(run: Path) -> list[str]:
    """Prompts in the order in which they were used."""
    prompts: list[str] = []
    for step in range(1, STEPS + 1):
        rows = read_rollout(run / "rollouts" / f"step_{step}.parquet")
        prompts += [row.prompt_id for row in rows if row.index == 0]
    return prompts


def test_a_run_stopped_between_and_gone_on_with_is_the_run_that_never_was(whole: runs.Finished, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped = runs.train(run, *settings(20))
    assert stopped.code == 0, stopped.output
    resumed = runs.train(run, *settings(), "--resume", "auto")
    assert resumed.code == 0, resumed.output
    assert "changed since the saved step: run.steps: 20 -> 40 (safe)" in resumed.output
    assert "going on from" in resumed.output
    # The evaluation after the last step is the stopped run's alone.
    once = [line for line in computed(run, range(21)) if line["step"] != 20]
    assert once == [line for line in computed(whole.directory, range(21)) if line["step"] != 20]
    assert computed(run, range(21, STEPS + 1)) == computed(whole.directory, range(21, STEPS + 1))
    assert weights(run) == weights(whole.directory)
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["1", "2"]
    again = runs.train(run, *settings(), "--resume", "auto")
    assert (again.code, "the run is finished" in again.output) == (0, True), again.output
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["1", "2"]


def _signalled(run: Path, number: signal.Signals) -> runs.Finished:
    process = runs.start(run, *settings(), "--resume", "auto")
    before = len(runs.read_metrics(run))
    runs.wait_for_step(run, before + 2, process)
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    return runs.Finished(process.returncode, output, run)


def test_a_signal_saves_the_last_whole_step_and_so_does_the_end_of_the_wall_time(
    whole: runs.Finished, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for number in (signal.SIGTERM, signal.SIGINT):
        stopped = _signalled(run, number)
        assert stopped.code == 130, stopped.output
        assert "the last whole step is saved first" in stopped.output
        last = runs.read_metrics(run)[-1]["step"]
        assert (run / "checkpoints" / "latest").read_text() == f"step_{last}\n"
        assert not (run / "hf" / f"step_{STEPS}").exists()
    limited = runs.train(run, *settings(10**6), "--resume", "auto", "run.max_wall_time=20")
    assert limited.code == 130, limited.output
    beyond = runs.read_metrics(run)[-1]["step"]
    assert (run / "checkpoints" / "latest").read_text() == f"step_{beyond}\n"
    # What an evaluation says is left out where a stop came first.
    found = [{key: line[key] for key in line if not key.startswith("eval/")} for line in computed(run, range(STEPS))]
    expected = computed(whole.directory, range(min(STEPS, beyond + 1)))
    assert found == [{key: line[key] for key in line if not key.startswith("eval/")} for line in expected]


def test_another_run_branches_off_a_saved_step_and_leaves_it_alone(whole: runs.Finished, tmp_path: Path) -> None:
    saved = whole.directory / "checkpoints"
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    branch = runs.train(tmp_path / "branch", *settings(), "--resume", str(saved / "step_39"))
    assert branch.code == 0, branch.output
    assert computed(branch.directory, range(STEPS + 1)) == computed(whole.directory, range(STEPS, STEPS + 1))
    assert weights(branch.directory) == weights(whole.directory)
    assert {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()} == before


class Killed:
    """One run directory, whose process is killed again and again."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._random = random.Random(1)

    def once(self, moment: Callable[[Killed, subprocess.Popen[str]], None]) -> None:
        process = runs.start(self.run, *settings(), "--resume", "auto")
        try:
            moment(self, process)
        finally:
            process.kill()
            output = process.communicate()[0]
        assert process.returncode == -signal.SIGKILL, output

    def while_starting(self, process: subprocess.Popen[str]) -> None:
        time.sleep(self._random.uniform(0.5, 8))

    def while_training(self, process: subprocess.Popen[str]) -> None:
        self._wait(process, self.lines)
        time.sleep(self._random.uniform(0, 0.4))

    def while_saving(self, process: subprocess.Popen[str]) -> None:
        left = self._partials()
        self._wait(process, lambda: bool(self._partials() - left))

    def _partials(self) -> set[tuple[str, int]]:
        """Names and inodes of what is being saved; it may be whole the next moment."""
        found: set[tuple[str, int]] = set()
        for path in (self.run / "checkpoints").glob(".step_*.partial"):
            with suppress(FileNotFoundError):
                found.add((path.name, path.stat().st_ino))
        return found

    def lines(self) -> int:
        return len(runs.read_metrics(self.run)) if self._is_rewritten() else 0

    def _is_rewritten(self) -> bool:
        """A killed process may have left half a line, which the next one removes."""
        file = self.run / "metrics.jsonl"
        return file.exists() and file.read_bytes().endswith(b"\n")

    def _wait(self, process: subprocess.Popen[str], happened: Callable[[], Any]) -> None:
        """Until it says something else than before."""
        before, deadline = happened(), time.monotonic() + 120
        while happened() == before:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # fourteen starts of all processes
def test_killed_at_twelve_moments_and_resumed_a_run_is_as_if_nothing_had_been(
    whole: runs.Finished, tmp_path: Path
) -> None:
    """CKP-04, CKP-14, CLI-01: also while a step is being saved, and with a second process in the way."""
    killed = Killed(tmp_path / "run")
    for moment in (Killed.while_training, Killed.while_saving, Killed.while_starting, Killed.while_saving) * 3:
        killed.once(moment)
    finished = runs.train(killed.run, *settings(), "--resume", "auto")
    assert finished.code == 0, finished.output
    assert computed(killed.run, range(STEPS + 1)) == computed(whole.directory, range(STEPS + 1))
    assert weights(killed.run) == weights(whole.directory)
    prompts = drawn(killed.run)
    assert prompts == drawn(whole.directory)
    for epoch in range(len(prompts) // 10):
        assert len(set(prompts[10 * epoch : 10 * epoch + 10])) == 10
    assert not list((killed.run / "checkpoints").glob(".step_*"))


def test_two_processes_do_not_go_on_with_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = runs.start(run, *settings(200))
    try:
        runs.wait_for_step(run, 1, first)
        for flags in (["--resume", "auto"], ["--resume", "auto", "--dry-run"], ["--overwrite"]):
            second = runs.train(run, *settings(200), *flags)
            expected = (0, "nothing was started") if "--dry-run" in flags else (2, "another process is running in")
            assert (second.code, expected[1] in second.output) == (expected[0], True), second.output
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_a_full_disk_leaves_the_last_saved_step_to_go_on_from(tmp_path: Path, on_failure: str) -> None:
    with small_disk(tmp_path / "disk", num_bytes=64 * 2**20) as disk:
        run = disk / "run"
        more = ("checkpoint.keep_last=1", f"checkpoint.on_failure={on_failure}")
        process = runs.start(run, *settings(10**6), *more)
        latest = run / "checkpoints" / "latest"
        while not latest.exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        filler = fill(disk, leave=2 * 2**20)
        if on_failure == "continue":
            step = len(runs.read_metrics(run)) - 1
            runs.wait_for_step(run, step + 6, process)
            process.kill()
        output = process.communicate(timeout=60)[0]
        if on_failure == "stop":
            assert process.returncode == 1, output
        assert "can't be saved in" in output
        filler.unlink()
        saved = int(latest.read_text().removeprefix("step_"))
        resumed = runs.train(run, *settings(saved + 8), *more, "--resume", "auto")
        assert resumed.code == 0, resumed.output
        assert f"going on from {run / 'checkpoints' / f'step_{saved}'}" in resumed.output
