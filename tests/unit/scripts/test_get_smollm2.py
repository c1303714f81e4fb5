from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "get_smollm2.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("get_smollm2", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_follow_hugging_face(script: ModuleType) -> None:
    assert script.hugging_face_name("token_embd.weight") == "model.embed_tokens.weight"
    assert script.hugging_face_name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"
    assert script.hugging_face_name("blk.0.ffn_norm.weight") == "model.layers.0.post_attention_layernorm.weight"


def test_rotary_pairs_move_from_neighbours_to_halves(script: ModuleType) -> None:
    rows = np.arange(128)[:, None] * np.ones((1, 3))
    moved = script.halves_together(rows)[:, 0]
    assert moved[:4].tolist() == [0, 2, 4, 6], "first head, first halves"
    assert moved[32:36].tolist() == [1, 3, 5, 7], "first head, second halves"
    assert moved[64:66].tolist() == [64, 66], "heads stay apart"


def test_the_config_has_the_models_parameters(script: ModuleType, tmp_path: Path) -> None:
    import json

    from rltrain.types.model_spec import ModelSpec

    (tmp_path / "config.json").write_text(json.dumps(script.CONFIG))
    assert ModelSpec.read(tmp_path).num_parameters == script.NUM_PARAMETERS


def test_a_second_call_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "NOTICE").write_text("made before")
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=True)
    assert "is there already" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["NOTICE"]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "was not made by this script" in done.stderr
