"""A complete small config in a directory of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.config.workspace import CONFIG, MODEL, ROWS


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`c.yaml`, `train.jsonl`, `eval.jsonl` and the directory `model`; the working directory is another one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(away)
    (home / "model").mkdir()
    (home / "model" / "config.json").write_text(json.dumps(MODEL))
    for name in ("train.jsonl", "eval.jsonl"):
        (home / name).write_text(ROWS)
    (home / "c.yaml").write_text(CONFIG)
    return home


@pytest.fixture
def write(workspace: Path) -> Callable[[str], Path]:
    """Writes a text as `c.yaml`."""

    def written(text: str) -> Path:
        path = workspace / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written
