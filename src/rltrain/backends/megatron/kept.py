"""What the optimizer keeps of each parameter, as whole tensors of the parameter's shape, whatever ranks share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from torch import Tensor

from rltrain.backends.megatron.convert.held import EXPERTS
from rltrain.backends.megatron.optimizer import Adam

WEIGHT = "weight"
"""In fp32 where the parameter is trained, else as the model has it."""
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class _Kept:
    """This rank's part of a parameter in the optimizer."""

    main: Tensor
    start: int
    """Of `main` in the flat parameter."""
    adam: Adam
    shared: bool
    """Other ranks have the rest."""


class KeptStates:
    def __init__(self, optimizer: Any) -> None:
        self._kept: dict[Tensor, _Kept] = {}
        for one in optimizer.chained_optimizers:
            if one.optimizer is None:  # there is none for experts that a stage hasn't, or that are frozen
                continue
            if isinstance(one, DistributedOptimizer):
                self._add_distributed(one)
            else:
                self._add_whole(one)

    def kinds(self, parameter: Tensor, *, moments: bool) -> tuple[str, ...]:
        return (WEIGHT, *MOMENTS) if moments and parameter.requires_grad else (WEIGHT,)

    def whole(self, kind: str, parameter: Tensor, *, group: Any, writer: int) -> Tensor | None:
        """A copy on the host, for the group's rank `writer`; the others get None.

        Collective over `group`, the ranks that have the same part of the model.
        """
        writes = group.rank() == writer
        kept = self._kept.get(parameter)
        if not parameter.requires_grad:
            return parameter.detach().to("cpu", copy=True) if writes else None
        if kept is not None and not kept.shared:
            return self._part(kept, kind).to("cpu", copy=True).view(parameter.shape) if writes else None
        # Bits, since a sum of numbers would lose the sign of a zero.
        bits = torch.zeros(parameter.numel(), dtype=torch.int32, device=parameter.device)
        if kept is not None:  # else the group's other ranks have all of it
            part = self._part(kept, kind).to(parameter.device).view(torch.int32)
            bits[kept.start : kept.start + part.numel()] = part
        if group.size() > 1:
            dist.reduce(bits, dist.get_global_rank(group, writer), group=group)
        return bits.to("cpu", copy=True).view(torch.float32).view(parameter.shape) if writes else None

    @torch.no_grad()
    def put(self, kind: str, parameter: Tensor, values: Tensor) -> None:
        """Weights go to the parameter, too. `values` has the parameter's shape."""
        if kind == WEIGHT:
            parameter.copy_(values)
        kept = self._kept.get(parameter)
        if kept is not None:
            flat = values.reshape(-1)[kept.start : kept.start + kept.main.numel()]
            self._part(kept, kind).copy_(flat)

    def set_updates(self, num_done: int) -> None:
        """How often the moments were updated."""
        for adam in {id(kept.adam): kept.adam for kept in self._kept.values()}.values():
            for group in adam.param_groups:
                group["step"] = num_done

    def _part(self, kept: _Kept, kind: str) -> Tensor:
        if kind == WEIGHT:
            return kept.main.detach().view(-1)
        (moment,) = kept.adam.moments([kept.main], kind)
        return moment.view(-1)

    def _add_distributed(self, optimizer: Any) -> None:
        for parameter, (group, place) in optimizer.model_param_group_index_map.items():
            span = optimizer._get_model_param_range_map(parameter)["param"]
            main = optimizer.optimizer.param_groups[group]["params"][place]
            assert main.numel() == span.end - span.start
            self._kept[parameter] = _Kept(main, span.start, optimizer.optimizer, shared=True)

    def _add_whole(self, optimizer: Any) -> None:
        adam = optimizer.optimizer
        halves = [parameter for group in getattr(optimizer, "float16_groups", []) for parameter in group]
        mains = {parameter.main_param: parameter for parameter in halves}
        for group in adam.param_groups:
            for main in group["params"]:
                self._kept[mains.get(main, main)] = _Kept(main, 0, adam, shared=False)


def same_parameter_group(name: str) -> Any:
    """The ranks that have the same part of a parameter."""
    if EXPERTS in name:
        return parallel_state.get_expert_data_parallel_group()
    return parallel_state.get_data_parallel_group(with_context_parallel=True)
