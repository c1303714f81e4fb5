"""A valid small config with a tokenizer, away from the working directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.config.workspace import CONFIG, ROWS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`c.yaml`, `train.jsonl`, `eval.jsonl` and the directory `model`."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(away)
    shutil.copytree(EXAMPLES / "tiny-qwen3", home / "model")
    for name in ("train.jsonl", "eval.jsonl"):
        (home / name).write_text(ROWS)
    (home / "c.yaml").write_text(CONFIG)
    return home
