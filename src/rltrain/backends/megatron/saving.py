"""A model and its optimizer as pieces of Hugging Face's tensors, which any layout can read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from torch import Tensor

from rltrain.backends.megatron.convert.held import held_parameters, named_weights, tensor_parallel_group
from rltrain.backends.megatron.convert.load import check_shapes, fill
from rltrain.backends.megatron.convert.tensors import OUTPUT, model_weights
from rltrain.backends.megatron.kept import MOMENTS, WEIGHT, KeptStates, same_parameter_group
from rltrain.backends.megatron.trainable import Trainable
from rltrain.checkpoint.pieces import Piece, SavedTensors
from rltrain.config.errors import UserError
from rltrain.types.model_spec import ModelSpec

RANDOM = "random"
"""States of random number generators, which belong to a rank and not to the model."""


def model_pieces(parts: Trainable, spec: ModelSpec, *, moments: bool) -> Iterator[Piece]:
    """What this rank is to write, on the host: no value is written by two.

    Collective. Weights are the optimizer's own, in fp32, where they are trained.
    """
    kept, weights = KeptStates(parts.optimizer), model_weights(spec)
    for number, (inside, parameter, chunk) in enumerate(held_parameters(parts.chunks)):
        if inside == OUTPUT and spec.tied:  # the last stage's copy of the embedding
            continue
        names = [name for name, _ in named_weights(inside, parameter, chunk, spec)]
        shares = tensor_parallel_group(names[0])
        if weights[names[0]].dim is None and shares.rank() != 0:
            continue
        group = same_parameter_group(names[0])
        for kind in kept.kinds(parameter, moments=moments):
            values = kept.whole(kind, parameter, group=group, writer=number % group.size())
            if values is None:
                continue
            for name, own in named_weights(inside, values, chunk, spec):
                weight = weights[name]
                for part, offset, piece in weight.placed(own, rank=shares.rank(), ranks=shares.size()):
                    yield Piece(kind, part, weight.parts[part], offset, piece)


def restore(parts: Trainable, spec: ModelSpec, saved: SavedTensors, *, moments: bool, key: str) -> None:
    """Fills weights and moments. Raises UserError at `key` for tensors that are missing or of another shape."""
    kept, weights = KeptStates(parts.optimizer), model_weights(spec)
    check_shapes(saved.shapes(WEIGHT), spec, key=key)
    for inside, parameter, chunk in held_parameters(parts.chunks):
        for kind in kept.kinds(parameter, moments=moments):
            values = torch.empty(parameter.shape, dtype=_dtype(kind, parameter), device="cpu")
            for name, own in named_weights(inside, values, chunk, spec):
                weight = weights[name]
                missing = [part for part in weight.parts if part not in saved.shapes(kind)]
                if missing:
                    rule = f"has no {kind} of {missing[0]}, which this run trains"
                    raise UserError.single(key, rule, hint="start from its weights alone")
                fill(name, own, weight, {part: saved.part(kind, part) for part in weight.parts})
            kept.put(kind, parameter, values)


def _dtype(kind: str, parameter: Tensor) -> torch.dtype:
    return torch.float32 if kind in MOMENTS or parameter.requires_grad else parameter.dtype


def random_pieces(rank: int) -> Iterator[Piece]:
    for name, state in _random_states().items():
        yield Piece(RANDOM, f"{rank}/{name}", tuple(state.shape), (0,), state.cpu())


def restore_random(saved: SavedTensors, *, rank: int, ranks: int) -> bool:
    """Whether the generators go on where they were; with another number of ranks they start anew, from the seed."""
    names = {f"{rank}/{name}" for rank in range(ranks) for name in _random_states()}
    if names != set(saved.shapes(RANDOM)):
        return False
    states = {name: saved.part(RANDOM, f"{rank}/{name}")[:] for name in _random_states()}
    torch.set_rng_state(states.pop("cpu"))
    if "cuda" in states:
        torch.cuda.set_rng_state(states.pop("cuda"))
    _tracker().set_states(states)
    return True


def _random_states() -> dict[str, Tensor]:
    own: dict[str, Tensor] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        own["cuda"] = torch.cuda.get_rng_state()
    return own | _tracker().get_states()


def _tracker() -> Any:
    """Megatron's generators, of ranks that are to draw alike and of those that are not."""
    return get_cuda_rng_tracker()
