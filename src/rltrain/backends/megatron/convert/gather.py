"""A model's weights as whole Hugging Face tensors, gathered from the ranks one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from rltrain.backends.megatron.convert.held import (
    Chunks,
    expert_number,
    expert_rank,
    held_tensors,
    tensor_parallel_group,
)
from rltrain.backends.megatron.convert.tensors import LAYERS, model_weights
from rltrain.backends.megatron.convert.weights import Weight
from rltrain.types.model_spec import ModelSpec


def hf_tensors(
    model: Chunks, spec: ModelSpec, *, value: Callable[[Tensor], Tensor] = Tensor.detach
) -> Iterator[tuple[str, Tensor]]:
    """In the order of `model_weights`, in the model's type; every rank of a data-parallel copy gets every tensor.

    Collective: all ranks iterate to the end together. `value` says what to take of a parameter. Views of the model
    where nothing needs gathering.
    """
    held = dict(held_tensors(model, spec, value=value))
    stages, rank = _stages(held), parallel_state.get_pipeline_model_parallel_rank()
    like = next(iter(held.values()))
    for name, weight in model_weights(spec).items():
        stage = stages[_place(name)]
        found = _own(held[name], name, weight) if name in held and rank == stage else _empty(weight, like)
        if rank == stage and (expert := expert_number(name)) is not None:
            _broadcast(found, parallel_state.get_expert_model_parallel_group(), expert_rank(expert, spec))
        _broadcast(found, parallel_state.get_pipeline_model_parallel_group(), stage)
        yield from found.items()


def _own(tensor: Tensor, name: str, weight: Weight) -> dict[str, Tensor]:
    group = tensor_parallel_group(name)
    shards = [tensor]
    if weight.dim is not None and group.size() > 1:
        shards = [torch.empty_like(tensor) for _ in range(group.size())]
        dist.all_gather(shards, tensor.contiguous(), group=group)
    return weight.whole(shards)


def _empty(weight: Weight, like: Tensor) -> dict[str, Tensor]:
    dtype = weight.dtype or like.dtype
    return {name: torch.empty(shape, dtype=dtype, device=like.device) for name, shape in weight.parts.items()}


def _broadcast(tensors: dict[str, Tensor], group: Any, source: int) -> None:
    """From the group's rank `source`."""
    if group.size() == 1:
        return
    for name, tensor in tensors.items():
        tensors[name] = tensor.contiguous()
        dist.broadcast(tensors[name], dist.get_global_rank(group, source), group=group)


def _stages(held: Iterable[str]) -> dict[str, int]:
    """The pipeline rank that each layer is on, and each weight outside of the layers."""
    own = {_place(name) for name in held}
    group: Any = parallel_state.get_pipeline_model_parallel_group()
    by_rank: list[Any] = [own]
    if group.size() > 1:
        by_rank = [None] * group.size()
        dist.all_gather_object(by_rank, own, group=group)
    # Backwards, since a tied output layer on the last stage is a copy of the first one's embedding.
    return {place: rank for rank in reversed(range(len(by_rank))) for place in by_rank[rank]}


def _place(name: str) -> str:
    return name.removeprefix(LAYERS).partition(".")[0] if name.startswith(LAYERS) else name
