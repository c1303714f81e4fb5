"""A Hugging Face directory is written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rltrain.checkpoint.hf_writer import write_hf_directory
from rltrain.checkpoint.safetensors_layout import TensorFacts

TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b": torch.arange(3, dtype=torch.bfloat16),  # of an odd length, before a wider one
    "c": torch.arange(12.0).reshape(3, 4).t(),  # not contiguous
}
LAYOUT = [TensorFacts.of(name, tensor) for name, tensor in TENSORS.items()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    (path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "name": "é"}')
    (path / "tokenizer.json").write_bytes(b"any bytes\r\n")
    (path / "generation_config.json").write_bytes(b"{}\n")
    (path / "model.safetensors").write_bytes(b"the old weights")
    (path / "notes.txt").write_bytes(b"the user's own")
    return path


def files(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


@pytest.mark.parametrize(("shard_bytes", "num_shards"), [(10**6, 1), (48, 2), (1, 3)])
def test_shards_index_config_and_tokenizer(tmp_path: Path, source: Path, shard_bytes: int, num_shards: int) -> None:
    target = tmp_path / "deep" / "target"
    write_hf_directory(target, LAYOUT, TENSORS.items(), source=source, dtype="bfloat16", shard_bytes=shard_bytes)
    shards = {f"model-{n:05}-of-{num_shards:05}.safetensors" for n in range(1, num_shards + 1)}
    others = {"model.safetensors.index.json", "config.json", "tokenizer.json", "generation_config.json"}
    assert files(target) == shards | others
    assert files(target.parent) == {"target"}
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 24 + 6 + 48
    assert index["weight_map"].keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(load_file(target / index["weight_map"][name])[name], tensor)
    assert (target / "tokenizer.json").read_bytes() == b"any bytes\r\n"
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    assert config == {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "name": "é"}


@pytest.mark.parametrize("failure", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, source: Path, failure: BaseException) -> None:
    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"]
        yield "b", TENSORS["b"]
        raise failure

    target = tmp_path / "target"
    with pytest.raises(type(failure)):
        write_hf_directory(target, LAYOUT, tensors(), source=source, dtype="float32", shard_bytes=1)
    assert files(tmp_path) == {"source"}
    write_hf_directory(target, LAYOUT, TENSORS.items(), source=source, dtype="float32")
    assert files(tmp_path) == {"source", "target"}


def test_a_directory_that_holds_something_is_refused_before_a_tensor_is_asked_for(tmp_path: Path, source: Path) -> None:
    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        raise AssertionError("asked for")
        yield

    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").write_bytes(b"kept")
    with pytest.raises(FileExistsError, match=f"{target} exists already and isn't empty"):
        write_hf_directory(target, LAYOUT, tensors(), source=source, dtype="float32")
    assert files(target) == {"mine"} and files(tmp_path) == {"source", "target"}


def test_an_empty_directory_is_filled(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    write_hf_directory(target, LAYOUT, TENSORS.items(), source=source, dtype="float32")
    assert "config.json" in files(target)


def test_a_directory_to_replace_stays_until_the_new_one_is_whole(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "weights").write_bytes(b"earlier")
    (source / "config.json").rename(tmp_path / "config.json")
    (source / "config.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_hf_directory(target, LAYOUT, TENSORS.items(), source=source, dtype="float32", replace=True)
    (source / "config.json").rmdir()
    (tmp_path / "config.json").rename(source / "config.json")
    assert files(target) == {"weights"}
    write_hf_directory(target, LAYOUT, TENSORS.items(), source=source, dtype=None, replace=True)
    assert "weights" not in files(target)
    assert (target / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert files(tmp_path) == {"source", "target"}
