"""Fills a model with a Hugging Face directory's weights, or with random ones: each rank its own shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from rltrain.backends.megatron.convert.held import Chunks, held_tensors, tensor_parallel_group
from rltrain.backends.megatron.convert.tensors import model_weights
from rltrain.backends.megatron.convert.weights import Shape, Weight
from rltrain.checkpoint.hf_reader import SafetensorsDirectory, Sliceable
from rltrain.config.errors import Problem, UserError
from rltrain.types.model_spec import ModelSpec

IGNORED = ("rotary_emb.inv_freq",)
"""Ends of names that older checkpoints hold without need."""


@torch.no_grad()
def load_weights(model: Chunks, spec: ModelSpec, path: Path, *, key: str) -> None:
    """Raises UserError naming every tensor that is missing, not needed or of another shape; `key` is the config's."""
    directory = SafetensorsDirectory(path, key=key)
    weights = model_weights(spec)
    check_shapes(directory.shapes, spec, key=key)
    for name, tensor in held_tensors(model, spec):
        fill(name, tensor, weights[name], {part: directory.part(part) for part in weights[name].parts})


@torch.no_grad()
def draw_weights(model: Chunks, spec: ModelSpec, *, seed: int) -> None:
    """Normal with `initializer_range`, norms 1, biases 0.

    A tensor's values follow from the seed and its Hugging Face name alone, so they are the same in every layout.
    """
    weights = model_weights(spec)
    for name, tensor in held_tensors(model, spec):
        if name.endswith("norm.weight"):
            tensor.fill_(0.0 if spec.zero_centred_norms else 1.0)
        elif name.endswith("bias"):
            tensor.zero_()
        else:
            parts, deviation = weights[name].parts, spec.initializer_range
            drawn = {part: drawn_tensor(part, shape, seed=seed, deviation=deviation) for part, shape in parts.items()}
            fill(name, tensor, weights[name], drawn)


def check_shapes(found: Mapping[str, Shape], spec: ModelSpec, *, key: str) -> None:
    """Raises UserError naming every tensor that is missing, not needed or of another shape."""
    expected = {name: shape for weight in model_weights(spec).values() for name, shape in weight.parts.items()}
    problems = list(_problems(expected, found, spec, key=key))
    if problems:
        raise UserError(problems)


def fill(name: str, tensor: Tensor, weight: Weight, sources: Mapping[str, Sliceable]) -> None:
    """A rank's part of a weight from the whole tensors."""
    group = tensor_parallel_group(name)
    tensor.copy_(weight.shard(sources, rank=group.rank(), ranks=group.size()))


def drawn_tensor(name: str, shape: Shape, *, seed: int, deviation: float) -> Tensor:
    """Normal values, fp32 on the CPU."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    return torch.empty(shape, dtype=torch.float32, device="cpu").normal_(0.0, deviation, generator=generator)


def _problems(
    expected: Mapping[str, Shape], found: Mapping[str, Shape], spec: ModelSpec, *, key: str
) -> Iterator[Problem]:
    for name, shape in expected.items():
        if name not in found:
            yield Problem(key=key, rule=f"lacks the tensor {name}")
        elif found[name] != shape:
            yield Problem(key=key, rule=f"{name} has shape {list(found[name])}, the model needs {list(shape)}")
    numbers = range(spec.num_layers, spec.num_layers + spec.num_extra_layers)
    ignored = (*(f"model.layers.{number}." for number in numbers), *(["lm_head.weight"] if spec.tied else []))
    for name in sorted(found.keys() - expected.keys()):
        if not name.endswith(IGNORED) and not name.startswith(ignored):
            yield Problem(key=key, rule=f"has the tensor {name}, which the model doesn't know")
