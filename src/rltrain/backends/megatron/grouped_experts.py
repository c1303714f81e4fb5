"""All experts of a rank in one matrix product of torch's (GPU, bfloat16)."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from megatron.core.transformer.module import MegatronModule
from torch import Tensor


class GroupedExperts(MegatronModule):
    """Takes the place of Megatron's SequentialMLP, with gated experts without biases."""

    def __init__(self, num_local_experts: int, config: Any, pg_collection: Any = None) -> None:
        super().__init__(config=config)
        self.num_local_experts = num_local_experts
        ranks = pg_collection.expt_tp.size()
        inner = config.moe_ffn_hidden_size // ranks
        self.linear_fc1 = self._weight((num_local_experts, 2 * inner, config.hidden_size), dim=1, stride=2)
        self.linear_fc2 = self._weight((num_local_experts, config.hidden_size, inner), dim=2, stride=1)

    @staticmethod
    def works(config: Any) -> bool:
        """Whether torch has the product for where this model's weights are."""
        return (
            hasattr(torch, "_grouped_mm")
            and not config.use_cpu_initialization
            and config.params_dtype is torch.bfloat16
            and torch.cuda.get_device_capability() >= (9, 0)
        )

    def forward(self, rows: Tensor, rows_per_expert: Tensor, probabilities: Tensor) -> tuple[Tensor, None]:
        """rows [R, hidden] in the order of the experts, probabilities [R] -> weighted outputs [R, hidden], no bias."""
        ends = rows_per_expert.to(rows.device).cumsum(0).to(torch.int32)
        gate, up = _product(rows, self.linear_fc1, ends).chunk(2, -1)
        inner = self.config.activation_func(gate) * up * probabilities[:, None]
        return _product(inner.to(rows.dtype), self.linear_fc2, ends), None

    def _weight(self, shape: tuple[int, ...], *, dim: int, stride: int) -> torch.nn.Parameter:
        weight = torch.nn.Parameter(
            torch.empty(shape, dtype=self.config.params_dtype, device=torch.cuda.current_device())
        )
        set_tensor_model_parallel_attributes(weight, is_parallel=True, dim=dim, stride=stride)
        setattr(weight, "allreduce", self.config.expert_model_parallel_size == 1)  # noqa: B010 - Megatron reads it there
        tracker: Any = get_cuda_rng_tracker()
        init: Any = self.config.init_method
        with tracker.fork(get_expert_parallel_rng_tracker_name()):
            init(weight)
        return weight


def _product(rows: Tensor, weight_E: Tensor, ends: Tensor) -> Tensor:
    """Rows of each expert times its matrix, transposed."""
    product: Any = getattr(torch, "_grouped_mm")  # noqa: B009 - not published by all releases
    return product(rows, weight_E.transpose(1, 2), offs=ends)
