"""Megatron's process groups for the config's layout, and this rank's place in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from megatron.core import parallel_state

from rltrain.config.model import ParallelConfig


@dataclass(frozen=True, slots=True)
class RankPlace:
    """What a rank knows of itself once the groups are there."""

    data_rank: int
    """Which share of the samples it works on; the same for all ranks that hold parts of one copy of the model."""
    context_rank: int
    first_stage: bool
    last_stage: bool
    """Has the model's end: hidden states, losses and log-probs are there alone."""
    reports: bool
    """Gives the results of its share of the samples: one rank of the last stage."""
    tensor_group: Any
    context_group: Any
    row_multiple: int
    """What the number of rows of a micro-batch must divide by."""
    equal_rows: bool
    """Whether micro-batches that ranks work on at the same time must have as many rows."""


def join_groups(config: ParallelConfig) -> RankPlace:
    """Megatron's order of ranks: tensor fastest, then context, then data, pipeline slowest."""
    parallel_state.initialize_model_parallel(
        config.tensor,
        config.pipeline,
        config.virtual_pipeline if config.virtual_pipeline > 1 else None,
        context_parallel_size=config.context,
        expert_model_parallel_size=config.expert,
        expert_tensor_parallel_size=config.experts_tensor,
        create_gloo_process_groups=False,
    )
    last_stage = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    context_rank = parallel_state.get_context_parallel_rank()
    return RankPlace(
        data_rank=parallel_state.get_data_parallel_rank(),
        context_rank=context_rank,
        first_stage=parallel_state.is_pipeline_first_stage(ignore_virtual=True),
        last_stage=last_stage,
        reports=last_stage and context_rank == 0 and parallel_state.get_tensor_model_parallel_rank() == 0,
        tensor_group=parallel_state.get_tensor_model_parallel_group(),
        context_group=parallel_state.get_context_parallel_group(),
        row_multiple=config.tensor if config.sequence else 1,
        equal_rows=config.expert > 1 and config.expert_dispatch == "allgather",
    )
