"""Weights in and out: sharded directories, transformers reading what was written, random ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.config.errors import UserError


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize(("family", "tied"), [("Llama", False), ("Qwen2", True), ("Qwen3", False)])
def test_sharded_directories_are_read_and_written_bit_for_bit(tmp_path: Path, family: str, tied: bool) -> None:
    import transformers

    from rltrain.backends.megatron.convert.tensors import hf_layout
    from rltrain.checkpoint.hf_writer import write_hf_directory

    source, target = tmp_path / "source", tmp_path / "target"
    model = given.save_model(source, family, tied=tied, shard_size="20KB")
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    assert len(list(source.glob("*.safetensors"))) > 1
    with given.worker(source) as worker:
        assert_equal(given.weights(worker), expected)
        layout = hf_layout(worker._spec, torch.float32)
        write_hf_directory(target, layout, worker._tensors(), source=source, dtype="float32", shard_bytes=20_000)
    shards = sorted(path.name for path in target.glob("*.safetensors"))
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert len(shards) > 1 and sorted(set(index["weight_map"].values())) == shards
    assert index["metadata"]["total_size"] == 4 * sum(tensor.numel() for tensor in expected.values())
    read: Any = getattr(transformers, f"{family}ForCausalLM").from_pretrained(target, dtype=torch.float32)
    assert_equal({name: parameter.detach() for name, parameter in read.named_parameters()}, expected)
    with given.worker(target) as worker:
        assert_equal(given.weights(worker), expected)


def test_a_shard_that_is_gone_or_broken_is_named(tmp_path: Path) -> None:
    given.save_model(tmp_path, "Llama", tied=False, shard_size="20KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(UserError, match=f"{shard.name} can't be read"):
        given.new_worker(given.train_setup(tmp_path))
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name} can't be read"):
        given.new_worker(given.train_setup(tmp_path))


def test_random_weights_follow_the_seed(tmp_path: Path) -> None:
    given.save_model(tmp_path, "Qwen2", tied=False)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    drawn: list[dict[str, torch.Tensor]] = []
    for seed in (3, 3, 4):
        with given.worker(tmp_path, init="random", seed=seed) as worker:
            drawn.append(given.weights(worker))
    assert_equal(drawn[0], drawn[1])
    for name, tensor in drawn[0].items():
        if name.endswith("norm.weight"):
            assert torch.equal(tensor, torch.ones_like(tensor)), name
        elif name.endswith(".bias"):
            assert not tensor.any(), name
        else:
            assert not torch.equal(tensor, drawn[2][name]), name
            # initializer_range is 0.1; four standard errors of a sample deviation, 1 / sqrt(2 n) of it each
            assert tensor.std().item() == pytest.approx(0.1, rel=4 / (2 * tensor.numel()) ** 0.5), name
