"""Tests of rltrain.doctor.machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltrain.doctor.finding import Level
from rltrain.doctor.machine import GIB, check_gpus, check_machine, check_python, check_space, gpu_names


@pytest.mark.parametrize(
    ("version", "level"), [((3, 11, 7), Level.FINE), ((3, 12, 3), Level.FINE), ((3, 14, 0), Level.WARNING)]
)
def test_only_the_tested_pythons_are_fine(version: tuple[int, int, int], level: Level) -> None:
    assert check_python(version).level is level


def test_little_space_is_a_warning_with_its_command() -> None:
    enough = check_space("/dev/shm", 2 * GIB, low_bytes=GIB, command="mount")
    little = check_space("/dev/shm", GIB // 2, low_bytes=GIB, command="mount")
    assert (enough.level, enough.command) == (Level.FINE, None)
    assert (little.level, little.command, little.found) == (Level.WARNING, "mount", "0.5 GiB")


def test_gpus_are_counted() -> None:
    assert check_gpus(["NVIDIA H200, 143771 MiB"] * 2).found == "2 x NVIDIA H200, 143771 MiB"
    assert check_gpus([]).found == "none"


def fake_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_gpu_names_come_from_the_drivers_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA H200, 143771 MiB'", monkeypatch)
    assert gpu_names() == ["NVIDIA H200, 143771 MiB"]


def test_a_failing_driver_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed'; exit 9", monkeypatch)
    assert gpu_names() == []


def test_no_tool_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_names() == []


def test_the_machine_is_described_whole(tmp_path: Path) -> None:
    subjects = [finding.subject for finding in check_machine([], directory=tmp_path)]
    assert subjects == ["Python", "CPU cores", "memory, free", "/dev/shm, free", "disk, free", "GPUs"]
