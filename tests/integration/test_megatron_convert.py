"""Weights in and out of a model that is split over ranks: what goes in as Hugging Face tensors comes out the same."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.config.errors import UserError

LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor": 2},
    "pipeline": {"pipeline": 2},
    "interleaved": {"pipeline": 2, "virtual_pipeline": 2},
    "uneven": {"pipeline": 2, "first_stage_layers": 1},
}
ODD_VOCABULARY = 97
"""Two ranks can't share it evenly."""


@pytest.fixture(scope="module")
def processes() -> Generator[given.RankProcesses]:
    made = given.RankProcesses(2)
    yield made
    made.close()


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def in_order(tensors: dict[str, torch.Tensor], like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    assert tensors.keys() == like.keys()
    return {name: tensors[name] for name in like}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_loaded_is_exported(processes: given.RankProcesses, tmp_path: Path, layout: str, tied: bool) -> None:
    """On every rank, in the order of one process."""
    model = given.save_model(tmp_path, "Qwen3", tied=tied, num_hidden_layers=4, vocab_size=ODD_VOCABULARY)
    with given.worker(tmp_path) as worker:
        alone = given.weights(worker)
    assert_equal(alone, in_order({name: tensor.detach() for name, tensor in model.named_parameters()}, alone))
    setup = given.train_setup(tmp_path, parallel=LAYOUTS[layout])
    for found, copies in processes.run(given.train, setup, [(given.weights,), (copies_of_the_embedding,)]):
        assert_equal(found, alone)
        assert all(torch.equal(copy, alone["model.embed_tokens.weight"]) for copy in copies)


def copies_of_the_embedding(worker: Any) -> list[torch.Tensor]:
    """The weights that this rank embeds with, or that it scores with where they are tied; whole ones alone."""
    chunks = worker._parts.chunks
    found = [chunk.embedding.word_embeddings.weight for chunk in chunks if chunk.pre_process]
    found += [chunk.head_weight for chunk in chunks if chunk.post_process and worker._spec.tied]
    return [weight.detach() for weight in found if len(weight) == worker._spec.vocab_size]


@pytest.mark.parametrize("layout", ["tensor", "pipeline"])
def test_random_weights_are_those_of_one_process(processes: given.RankProcesses, tmp_path: Path, layout: str) -> None:
    given.save_model(tmp_path, "Qwen2", tied=True, vocab_size=ODD_VOCABULARY)
    with given.worker(tmp_path, init="random") as worker:
        alone = given.weights(worker)
    setup = given.train_setup(tmp_path, init="random", parallel=LAYOUTS[layout])
    for (found,) in processes.run(given.train, setup, [(given.weights,)]):
        assert_equal(found, alone)


@pytest.mark.parametrize("layout", ["tensor", "pipeline"])
def test_a_tensor_that_another_rank_needs_is_missed_by_all(
    processes: given.RankProcesses, tmp_path: Path, layout: str
) -> None:
    from safetensors.torch import load_file, save_file

    given.save_model(tmp_path, "Llama", tied=False)
    (file,) = tmp_path.glob("*.safetensors")
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        processes.run(given.train, given.train_setup(tmp_path, parallel=LAYOUTS[layout]), [(given.weights,)])
