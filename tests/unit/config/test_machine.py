"""Tests of rltrain.config.machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltrain.config.cluster import ClusterConfig
from rltrain.config.machine import Machine, host_memory_bytes, this_machine, visible_gpus


@pytest.mark.parametrize(
    ("chosen", "count"), [(None, 3), ("", 0), ("0", 1), ("1,2", 2), ("0,1,2,3,4", 3), ("-1", 0), ("0,-1,1", 1)]
)
def test_gpus_are_device_files_that_cuda_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, count: int
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible_gpus(devices=tmp_path) == count


def test_auto_takes_gpus_where_there_are_some() -> None:
    memory = host_memory_bytes()
    assert this_machine(ClusterConfig(gpus=2)) == Machine("cuda", 2, host_memory_bytes=memory)
    assert this_machine(ClusterConfig(gpus=0)) == Machine("cpu", 0, host_memory_bytes=memory)
    assert this_machine(ClusterConfig(gpus=2, device="cpu")) == Machine("cpu", 0, host_memory_bytes=memory)


def test_a_containers_limit_counts_where_it_is_less(tmp_path: Path) -> None:
    limit, none, gone = tmp_path / "memory.max", tmp_path / "none", tmp_path / "gone"
    limit.write_text("1048576\n")
    none.write_text("max\n")
    assert host_memory_bytes(limits=(gone, none, limit)) == 2**20
    assert host_memory_bytes(limits=(none,)) > 2**20
