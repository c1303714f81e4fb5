"""Tests of rltrain.telemetry.profiler on a CPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch

from rltrain.config.profile import ProfileConfig
from rltrain.telemetry.profiler import Profiler


def test_a_chosen_step_leaves_a_trace_and_a_table_of_its_operations(tmp_path: Path) -> None:
    profiler = Profiler(ProfileConfig(steps=(2,)), tmp_path, process="trainer-0")
    with profiler.part("update", step=2):
        torch.ones(64, 64) @ torch.ones(64, 64)
    trace = tmp_path / "step_2" / "trainer-0-update.trace.json.gz"
    names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert "aten::matmul" in names
    assert "aten::mm" in (tmp_path / "step_2" / "trainer-0-update.operations.txt").read_text(encoding="utf-8")


def test_other_steps_leave_nothing(tmp_path: Path) -> None:
    for config in (None, ProfileConfig(steps=(2,))):
        with Profiler(config, tmp_path, process="trainer-0").part("update", step=1):
            torch.ones(2, 2) @ torch.ones(2, 2)
    assert list(tmp_path.iterdir()) == []
