"""What a run leaves when something is killed: nothing, and a message that says what died."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.integration.runs import ROOT, gone_within, kill, start, train, wait_for_step, workers_of

LIMIT_S = 20
"""The issue's: the rest is gone within it."""


def pid_of(title: str, workers: dict[int, str]) -> int:
    return next(pid for pid, name in workers.items() if title in name)


@pytest.mark.parametrize(
    ("victim", "named"),
    [("ray::TrainerHost", "trainer-0"), ("ray::EngineHost", "engine-0"), ("VLLM::EngineCore", "engine-0")],
)
def test_kill_9_of_a_worker_ends_the_run_and_names_it(victim: str, named: str, tmp_path: Path):
    directory = tmp_path / "run"
    process = start(directory, "run.steps=10000", "eval.every=10000")
    wait_for_step(directory, 2, process)
    workers = workers_of(process.pid)
    kill(pid_of(victim, workers))
    output, _ = process.communicate(timeout=LIMIT_S + 5)
    assert process.returncode == 1, output
    assert f"{named}" in output
    assert str(directory / "logs") in output
    assert "Traceback" not in output
    assert gone_within(list(workers), LIMIT_S)


def test_kill_9_of_the_driver_leaves_no_process(tmp_path: Path):
    directory = tmp_path / "run"
    process = start(directory, "run.steps=10000")
    wait_for_step(directory, 1, process)
    workers = list(workers_of(process.pid))
    assert len(workers) >= 5
    process.kill()
    process.communicate()
    assert gone_within(workers, LIMIT_S)


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("rltrain.cluster.group:EngineHandle.generate", signal.SIGINT),
        ("rltrain.rewards.pool:Pool.run", signal.SIGTERM),
        ("rltrain.cluster.group:TrainerGroup.update", signal.SIGINT),
        ("rltrain.cluster.group:EngineHandle.load_bucket", signal.SIGTERM),  # the weight sync
        ("rltrain.cluster.group:EngineHandle.score", signal.SIGINT),  # the canary
    ],
)
def test_a_signal_in_any_stage_ends_the_run_cleanly_within_seconds(stage: str, number: signal.Signals, tmp_path: Path):
    (tmp_path / "worker.py").write_text("def reward(response, label):\n    return 0.0\n")
    config = tmp_path / "config.yaml"
    config.write_text(f"base: {ROOT / 'configs' / 'quickstart.yaml'}\n")
    go = tmp_path / "go"
    process = start(
        tmp_path / "run",
        "run.steps=10000",
        "reward.parts.other={kind: custom, function: 'worker:reward'}",
        config=config,
        program=[sys.executable, str(Path(__file__).with_name("signalled_run.py")), stage, str(int(number)), str(go)],
    )
    wait_for_step(tmp_path / "run", 1, process)
    workers = list(workers_of(process.pid))
    go.touch()
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 130, output
    assert output.count("interrupted") == 1, output
    assert "Traceback" not in output
    assert "never retrieved" not in output
    assert gone_within(workers, 5)


def test_weights_that_do_not_fit_are_refused_and_leave_no_directory(tmp_path: Path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "examples" / "tiny-qwen3", model)
    save_file({"model.norm.weight": torch.ones(128)}, model / "model.safetensors")
    run = train(tmp_path / "run", f"actor.model.path={model}", "actor.model.init=pretrained")
    assert run.code == 2, run.output
    assert "model.embed_tokens.weight" in run.output
    assert "Traceback" not in run.output
    assert not run.directory.exists()
