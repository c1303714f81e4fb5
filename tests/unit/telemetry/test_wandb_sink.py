from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.namespace import Args
from rltrain.config.tree import Config
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.telemetry.wandb_sink import WandbSink


def make_args(directory: Path, mode: str = "offline") -> Args:
    tree: dict[str, Any] = {
        "run": {"name": "run", "directory": directory, "steps": 1},
        "cluster": {"env": {"MY_TOKEN": "SECRET789", "NOTE": "SECRET123"}},
        "data": {"sources": [{"path": directory / "data.jsonl"}]},
        "reward": {"parts": {"exact": {"kind": "exact"}}},
        "rollout": {"prompts_per_step": 1, "samples_per_prompt": 2},
        "actor": {"model": {"path": directory / "model"}, "optimizer": {"learning_rate": 1e-6}},
        "telemetry": {"wandb": {"project": "test", "mode": mode}},
    }
    return Args(Config(**tree), config_path=directory / "c.yaml")


def everything_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the wandb extra")
def test_sec_03_an_offline_run_works_without_network_and_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "SECRET123")
    monkeypatch.setattr(sys, "argv", ["rltrain", "train", "cluster.env.MY_TOKEN=SECRET789"])
    args = make_args(tmp_path)
    run = RunDirectory.create(args, overwrite=False)
    sink = WandbSink(args, run)
    sink.write(0, {"eval/rep/reward_mean": 0.0})
    sink.write(1, {"reward/mean": 0.5, "train/grad_norm": float("nan")})
    sink.close()
    assert run.wandb_id.read_text().strip() == sink.id
    run.release()
    written = everything_below(run.path)
    deadline = time.monotonic() + 20
    while b"reward/mean" not in written and time.monotonic() < deadline:  # a process of wandb's own writes it
        time.sleep(0.1)
        written = everything_below(run.path)
    assert b"reward/mean" in written
    for secret in (b"SECRET123", b"SECRET789"):
        assert secret not in written


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the wandb extra")
def test_a_process_that_goes_on_with_a_run_writes_to_the_same_one(tmp_path: Path) -> None:
    args = make_args(tmp_path)
    run = RunDirectory.create(args, overwrite=False)
    first = WandbSink(args, run)
    first.write(1, {"loss": 0.5})
    first.close()
    run.release()
    reopened = RunDirectory.reopen(run.path)
    again = WandbSink(args, reopened)
    again.rewind(1)
    again.write(2, {"loss": 0.4})
    again.close()
    assert again.id == first.id
    reopened.release()
