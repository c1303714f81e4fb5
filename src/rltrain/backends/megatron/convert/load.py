"""Fills a model with a Hugging Face directory's weights, or with random ones; gives them back under those names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from rltrain.backends.megatron.convert.checkpoint import SafetensorsDirectory
from rltrain.backends.megatron.convert.tensors import hf_names, join, split
from rltrain.config.errors import Problem, UserError
from rltrain.types.model_spec import ModelSpec

Shapes = Mapping[str, tuple[int, ...]]
IGNORED = ("rotary_emb.inv_freq",)
"""Ends of names that older checkpoints hold without need."""


@torch.no_grad()
def load_weights(model: torch.nn.Module, spec: ModelSpec, path: Path, *, key: str) -> None:
    """Raises UserError naming every tensor that is missing, not needed or of another shape; `key` is the config's."""
    directory = SafetensorsDirectory(path, key=key)
    expected = {name: tuple(tensor.shape) for name, tensor in hf_tensors(model, spec)}
    problems = list(_problems(expected, directory.shapes, tied=spec.tied, key=key))
    if problems:
        raise UserError(problems)
    for name, parameter in model.named_parameters():
        parameter.copy_(join([directory.tensor(part) for part in hf_names(name, spec)], spec))


@torch.no_grad()
def draw_weights(model: torch.nn.Module, spec: ModelSpec, *, seed: int) -> None:
    """Normal with `initializer_range`, norms 1, biases 0.

    A tensor's values follow from the seed and its Hugging Face name alone, so they are the same in every layout.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("layernorm.weight"):
            parameter.fill_(1.0)
        elif name.endswith(".bias"):
            parameter.zero_()
        else:
            names = hf_names(name, spec)
            shapes = [part.shape for part in split(parameter, len(names), spec)]
            drawn = [_drawn(part, shape, spec, seed) for part, shape in zip(names, shapes, strict=True)]
            parameter.copy_(join(drawn, spec))


def hf_tensors(model: torch.nn.Module, spec: ModelSpec) -> Iterator[tuple[str, Tensor]]:
    """The weights under their Hugging Face names, in the model's order and type."""
    for name, parameter in model.named_parameters():
        names = hf_names(name, spec)
        yield from zip(names, split(parameter.detach(), len(names), spec), strict=True)


def _drawn(name: str, shape: torch.Size, spec: ModelSpec, seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    values = torch.empty(shape, dtype=torch.float32, device="cpu")
    return values.normal_(0.0, spec.initializer_range, generator=generator)


def _problems(expected: Shapes, found: Shapes, *, tied: bool, key: str) -> Iterator[Problem]:
    for name, shape in expected.items():
        if name not in found:
            yield Problem(key=key, rule=f"lacks the tensor {name}")
        elif found[name] != shape:
            yield Problem(key=key, rule=f"{name} has shape {list(found[name])}, the model needs {list(shape)}")
    for name in sorted(found.keys() - expected.keys()):
        if not name.endswith(IGNORED) and not (tied and name == "lm_head.weight"):
            yield Problem(key=key, rule=f"has the tensor {name}, which the model doesn't know")
