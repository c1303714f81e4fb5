"""Tests of rltrain.trainer.host_needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rltrain.config.load import load_args
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.trainer.host_needs import disk_problems, host_memory_problems
from rltrain.types.model_spec import ModelSpec
from tests.unit.config.workspace import CONFIG

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "tiny-qwen3"
MEMORY = 8 * 2**30
CPU = Machine("cpu", 0, host_memory_bytes=MEMORY)

Make = Callable[..., Args]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "c.yaml").write_text(CONFIG)
    return lambda *overrides: load_args(tmp_path / "c.yaml", overrides)


@pytest.fixture
def spec() -> ModelSpec:
    return ModelSpec.read(EXAMPLE)


def test_a_small_run_fits(make: Make, spec: ModelSpec) -> None:
    assert host_memory_problems(make(), spec, CPU) == []


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["rollout.engines=100"], "rollout.engines"),
        (["rollout.kv_cache_bytes=8589934592"], "rollout.kv_cache_bytes"),
        (["cluster.object_store_bytes=8589934592"], "cluster.object_store_bytes"),
        (["actor.parallel.data=80"], "actor.parallel.data"),
        (["reward={parts: {m: {kind: math}}, workers: 400}"], "reward.workers"),
    ],
)
def test_more_than_the_machine_has_is_told_at_the_key_that_asks_for_most(
    make: Make, spec: ModelSpec, overrides: list[str], key: str
) -> None:
    (problem,) = host_memory_problems(make(*overrides), spec, CPU)
    assert problem.key == key
    assert "this machine has 8 GiB" in problem.rule


def test_other_machines_memory_is_not_known(make: Make, spec: ModelSpec) -> None:
    assert host_memory_problems(make("rollout.engines=100", "cluster.address=auto"), spec, CPU) == []
    assert host_memory_problems(make("rollout.engines=100"), spec, Machine("cpu", 0)) == []


def test_a_disk_without_room_for_the_final_weights_is_told(
    make: Make, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=1)

    assert disk_problems(make(), spec) == []
    monkeypatch.setattr("rltrain.trainer.host_needs.shutil.disk_usage", full)
    (problem,) = disk_problems(make(), spec)
    assert problem.key == "run.directory" and "final weights" in problem.rule
    assert disk_problems(make("checkpoint.export_final=false"), spec) == []
    (problem,) = disk_problems(make("checkpoint.export_final=false", "checkpoint.every=1"), spec)
    assert "saved steps" in problem.rule
