"""A rank's part of a model with all that changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from torch import Tensor

from rltrain.backends.megatron.args import DTYPES, MegatronArgs, megatron_args
from rltrain.backends.megatron.freezing import freeze
from rltrain.backends.megatron.model import HiddenStateModel
from rltrain.backends.megatron.optimizer import make_optimizer
from rltrain.backends.megatron.ranks import RankPlace
from rltrain.backends.megatron.setup import TrainSetup
from rltrain.types.model_spec import ModelSpec


@dataclass(frozen=True)
class Trainable:
    chunks: tuple[HiddenStateModel, ...]
    """One, or this stage's pieces where the pipeline is interleaved."""
    wrapped: tuple[Any, ...]
    """The same in Megatron's data parallelism."""
    optimizer: Any
    device: torch.device
    dtype: torch.dtype
    place: RankPlace
    share_prompts: bool

    def head(self) -> Tensor:
        """The output layer's weight, up to date; for ranks of the last stage."""
        weight = self.chunks[-1].head_weight
        if (
            self.wrapped[-1].use_forward_hook and weight.requires_grad
        ):  # no call of a module brings it, so nothing else waits for it
            self.wrapped[-1].param_to_bucket_group[weight].finish_param_sync()
        return weight

    def settle(self) -> None:
        """Waits for weights that other ranks updated, so that they may be read and replaced."""
        for chunk in self.wrapped:
            if chunk.use_forward_hook:
                chunk.start_param_sync(force_sync=True)


def build(
    setup: TrainSetup,
    spec: ModelSpec,
    place: RankPlace,
    device: torch.device,
    *,
    fill: Callable[[tuple[HiddenStateModel, ...]], None],
) -> Trainable:
    """`fill` gives the model's pieces their weights. Raises UserError for settings that Megatron refuses."""
    args = megatron_args(setup.role, spec, device=device.type)
    chunks = _chunks(args, spec, place, device)
    fill(chunks)
    freeze(chunks, spec, setup.role)
    wrapped = tuple(
        DistributedDataParallel(args.transformer, args.ddp, chunk, disable_bucketing=number > 0)
        for number, chunk in enumerate(chunks)
    )
    optimizer = make_optimizer(args, list(wrapped), offloads=setup.role.optimizer.offload)
    if args.ddp.overlap_grad_reduce:
        waits = [chunk.no_sync for chunk in wrapped]
        args.transformer.no_sync_func = waits if len(waits) > 1 else waits[0]  # pyright: ignore
    return Trainable(
        chunks, wrapped, optimizer, device, DTYPES[setup.role.model.dtype], place, setup.role.share_prompts
    )


def _chunks(
    args: MegatronArgs, spec: ModelSpec, place: RankPlace, device: torch.device
) -> tuple[HiddenStateModel, ...]:
    pieces = args.transformer.virtual_pipeline_model_parallel_size
    stages = [None] if pieces is None else list(range(pieces))
    made: list[Any] = [
        HiddenStateModel(
            args.transformer,
            spec,
            device=device,
            first=place.first_stage and stage in (None, 0),
            last=place.last_stage and stage in (None, stages[-1]),
            vp_stage=stage,
        ).to(device)
        for stage in stages
    ]
    return tuple(made)
