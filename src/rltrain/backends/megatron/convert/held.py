"""What this rank holds of a model, under names that are the same for every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from torch import Tensor

from rltrain.backends.megatron.convert.tensors import EMBEDDING, LAYERS, OUTPUT
from rltrain.types.model_spec import ModelSpec

Chunks = torch.nn.Module | Sequence[torch.nn.Module]
"""A rank's model, or its interleaved pipeline stages."""
EXPERTS = "mlp.experts."
LOCAL_EXPERTS = "mlp.experts.local_experts."
BIAS = "router.expert_bias"


def held_tensors(
    chunks: Chunks, spec: ModelSpec, *, value: Callable[[Tensor], Tensor] = Tensor.detach
) -> Iterator[tuple[str, Tensor]]:
    """Weights under the names of `model_weights`; the tied output layer of a last stage under the embedding's.

    Parameters, and the routers' biases, which the optimizer doesn't know; of each, what `value` takes. Experts of one
    parameter come one by one.
    """
    for name, tensor, chunk in held_parameters(chunks):
        yield from named_weights(name, value(tensor), chunk, spec)


def held_parameters(chunks: Chunks) -> Iterator[tuple[str, Tensor, torch.nn.Module]]:
    """Parameters and the routers' biases under a chunk's own names, with the chunk."""
    for chunk in [chunks] if isinstance(chunks, torch.nn.Module) else chunks:
        buffers = ((name, buffer) for name, buffer in chunk.named_buffers() if name.endswith(BIAS))
        for name, tensor in (*chunk.named_parameters(), *buffers):
            yield name, tensor, chunk


def tensor_parallel_group(name: str) -> Any:
    """Ranks that share a weight."""
    if EXPERTS in name:
        return parallel_state.get_expert_tensor_parallel_group()
    return parallel_state.get_tensor_model_parallel_group()


def expert_number(name: str) -> int | None:
    _, found, rest = name.partition(EXPERTS)
    return int(rest.partition(".")[0]) if found else None


def expert_rank(number: int, spec: ModelSpec) -> int:
    """The expert-parallel rank that has an expert: the same number of consecutive ones is on each."""
    assert spec.experts is not None
    return number * parallel_state.get_expert_model_parallel_world_size() // spec.experts.count


def named_weights(name: str, tensor: Tensor, chunk: Any, spec: ModelSpec) -> Iterator[tuple[str, Tensor]]:
    """One of a chunk's parameters under the name of `model_weights`, or its experts under theirs."""
    if not name.startswith(LAYERS):
        yield EMBEDDING if name == OUTPUT and spec.tied else name, tensor
        return
    number, _, inside = name.removeprefix(LAYERS).partition(".")
    layer = chunk.decoder.layers[int(number)].layer_number - 1
    place = f"{LAYERS}{layer}."
    if not inside.startswith(EXPERTS):
        yield f"{place}{inside}", tensor
        return
    first = chunk.decoder.layers[int(number)].mlp.local_expert_indices[0]
    if inside.startswith(LOCAL_EXPERTS):
        local, _, rest = inside.removeprefix(LOCAL_EXPERTS).partition(".")
        yield f"{place}{EXPERTS}{first + int(local)}.{rest}", tensor
        return
    for expert, own in enumerate(tensor, start=first):
        yield f"{place}{EXPERTS}{expert}.{inside.removeprefix(EXPERTS)}.weight", own
