from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from rltrain.types.model_spec import ModelSpec

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "examples" / "tiny-qwen3"


def test_the_script_makes_the_shipped_files_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_tiny_model.py"), str(tmp_path)], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in SHIPPED.iterdir()}


def test_the_model_has_the_documented_size() -> None:
    spec = ModelSpec.read(SHIPPED)
    assert spec.num_parameters == 303_872
    assert (spec.family, spec.eos_ids, spec.tied, spec.max_positions) == ("qwen3", (1,), True, 64)


def test_transformers_counts_as_many_parameters() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(SHIPPED))
    assert sum(parameter.numel() for parameter in model.parameters()) == 303_872


@pytest.mark.parametrize("text", ["7=", "7777", "12+34= ab<z>"])
def test_both_tokenizers_read_a_character_a_token_and_write_plain_text(text: str) -> None:
    from transformers import AutoTokenizer

    plain = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    ids = plain.encode(text).ids
    assert len(ids) == len(text)
    assert plain.decode(ids) == text
    transformers: Any = AutoTokenizer.from_pretrained(SHIPPED)
    assert transformers(text).input_ids == ids
    assert transformers.decode(ids) == text


def test_every_id_that_the_model_can_draw_has_a_text() -> None:
    plain = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    assert plain.get_vocab_size() == ModelSpec.read(SHIPPED).vocab_size
    assert all(plain.id_to_token(number) for number in range(64))


def test_special_tokens_are_no_text() -> None:
    plain = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    assert (plain.token_to_id("<pad>"), plain.token_to_id("<eos>"), plain.token_to_id("<unk>")) == (0, 1, 2)
    assert plain.decode([10, 10, 1, 0]) == "77"
