"""The parallel layout and recomputation as fields of Megatron's configs."""

from __future__ import annotations

from typing import Any

import torch

from rltrain.config.model import FullRecompute, ParallelConfig, Recompute, SelectiveRecompute


def transformer_fields(parallel: ParallelConfig, recompute: Recompute, dtype: torch.dtype) -> dict[str, Any]:
    interleaved = parallel.virtual_pipeline > 1
    return {
        "tensor_model_parallel_size": parallel.tensor,
        "sequence_parallel": parallel.sequence,
        "pipeline_model_parallel_size": parallel.pipeline,
        "virtual_pipeline_model_parallel_size": parallel.virtual_pipeline if interleaved else None,
        "num_layers_in_first_pipeline_stage": parallel.first_stage_layers,
        "num_layers_in_last_pipeline_stage": parallel.last_stage_layers,
        "context_parallel_size": parallel.context,
        "expert_model_parallel_size": parallel.expert,
        "expert_tensor_parallel_size": parallel.experts_tensor,
        "pipeline_dtype": dtype,
        # Micro-batches have as many rows as their samples need.
        "variable_seq_lengths": parallel.pipeline > 1,
        # Without experts, too: Megatron's default refuses varying rows.
        "moe_token_dispatcher_type": parallel.expert_dispatch,
        # Of two interleaved stages each is before and after the other: sent in one batch, what goes up and what comes
        # down would be mistaken for one another.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        **_recompute_fields(recompute),
    }


def _recompute_fields(recompute: Recompute) -> dict[str, Any]:
    match recompute:
        case FullRecompute():
            return {
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": recompute.layers,
            }
        case SelectiveRecompute():
            return {"recompute_granularity": "selective", "recompute_modules": list(recompute.modules)}
        case _:
            return {}


def optimizer_fields(parallel: ParallelConfig) -> dict[str, Any]:
    return {
        "use_distributed_optimizer": parallel.shard_optimizer,
        "overlap_param_gather": parallel.overlap_param_gather,
    }


def ddp_fields(parallel: ParallelConfig) -> dict[str, Any]:
    return {
        "grad_reduce_in_fp32": True,
        "use_distributed_optimizer": parallel.shard_optimizer,
        "overlap_grad_reduce": parallel.overlap_grad_reduce,
        "overlap_param_gather": parallel.overlap_param_gather,
    }
