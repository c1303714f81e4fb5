"""Mixtures of experts in Megatron's layer: its router, dispatchers and experts, and what they lack without extras."""

from __future__ import annotations

import functools
from typing import Any

import torch
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplay
from megatron.core.transformer.spec_utils import ModuleSpec
from torch import Tensor

from rltrain.backends.megatron.grouped_experts import GroupedExperts
from rltrain.types.model_parts import ExpertsSpec


def expert_layer(config: Any, experts: ExpertsSpec) -> ModuleSpec:
    """Experts one after another, or all in one product where torch has it for the device and type."""
    _mend_megatron()
    spec = get_moe_module_spec(use_te=False, num_experts=experts.count, moe_grouped_gemm=False)
    parts: Any = spec.submodules
    if experts.groups > 1:
        parts.router = functools.partial(GroupRouter, experts=experts)
    if GroupedExperts.works(config):
        parts.experts = ModuleSpec(GroupedExperts)
    return spec


class GroupRouter(TopKRouter):
    """Chooses groups of experts, then experts of those, by the model's rule; Megatron knows another one alone."""

    def __init__(self, config: Any, pg_collection: Any = None, *, experts: ExpertsSpec) -> None:
        super().__init__(config=config, pg_collection=pg_collection)
        if self.router_replay is not None:
            RouterReplay.global_router_replay_instances.remove(self.router_replay)
        self.router_replay = GroupChoice(experts)
        if not config.moe_enable_routing_replay:  # Megatron's list is of those that it records and replays
            RouterReplay.global_router_replay_instances.remove(self.router_replay)


class GroupChoice(RouterReplay):
    """Stands where Megatron records and replays choices, which it still does."""

    def __init__(self, experts: ExpertsSpec) -> None:
        super().__init__()
        self._experts = experts

    def get_replay_topk(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scores: Tensor, topk: int, num_groups: int | None, group_topk: int | None, _default: Any
    ) -> tuple[Tensor, Tensor]:
        return super().get_replay_topk(scores, topk, num_groups, group_topk, self._choose)

    def _choose(
        self, scores: Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """scores [T, experts] -> the largest scores within the chosen groups and their experts [T, topk]."""
        experts = self._experts
        grouped = scores.unflatten(-1, (experts.groups, -1))
        count = 1 if experts.group_score == "largest" else 2
        chosen = grouped.topk(count, -1).values.sum(-1).topk(experts.chosen_groups, -1).indices
        hidden = torch.ones(grouped.shape[:2], dtype=torch.bool, device=scores.device).scatter(1, chosen, False)
        left = grouped.masked_fill(hidden[..., None], float("-inf")).flatten(1)
        indices = left.topk(topk, -1).indices
        return scores.gather(1, indices), indices


def _mend_megatron() -> None:
    """Two faults of 0.16 that are in the way of experts without TransformerEngine, and on a CPU."""
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    if not torch.cuda.is_available():
        token_dispatcher.maybe_move_tensor_to_cpu = _on_host


def _on_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Megatron turns counts on a GPU into host arrays, but leaves those alone that are on the host already."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor
