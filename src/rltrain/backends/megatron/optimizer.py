"""Adam on torch's fused kernel, Megatron's optimizer around it, and the course of the learning rate."""

from __future__ import annotations

import math
from typing import Any

import megatron.core.optimizer as megatron_optimizer
import torch
from megatron.core.optimizer import distrib_optimizer, get_megatron_optimizer

from rltrain.backends.megatron.args import MegatronArgs
from rltrain.config.model import ConstantSchedule, CosineSchedule, OptimizerConfig

PORTION_BYTES = 512 * 2**20
"""Of each moment that is on the device at once, where moments are kept in host memory."""


class Adam(torch.optim.Optimizer):
    """AdamW with the state layout of Apex, `step` in the parameter group.

    With torch's own AdamW, Megatron's distributed optimizer can't load what it saved and shares one step count.
    """

    offloads = False
    """Moments are in host memory and come to the device, some parameters' at a time, for the step."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        self.adam_w_mode = options.get("adam_w_mode", True)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            group["step"] = int(group.get("step", 0)) + 1
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for same in _by_type(parameters):
                for portion in _portions(same) if self.offloads else [same]:
                    self._step(portion, group)

    def moments(self, parameters: list[torch.Tensor], name: str) -> list[torch.Tensor]:
        """`exp_avg` or `exp_avg_sq` of each, zeros before the first step; in host memory where it offloads."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = self._zeros(parameter)
        return [self.state[parameter][name] for parameter in parameters]

    def _zeros(self, parameter: torch.Tensor) -> torch.Tensor:
        if not self.offloads:
            return torch.zeros_like(parameter)
        return torch.zeros_like(parameter, device="cpu", pin_memory=parameter.is_cuda)

    def _step(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        kept = [self.moments(parameters, name) for name in ("exp_avg", "exp_avg_sq")]
        device = parameters[0].device
        moments = [[one.to(device, non_blocking=True) for one in column] for column in kept]
        self._update(parameters, moments, group)
        if self.offloads:
            for host, found in zip(kept, moments, strict=True):
                for one, other in zip(host, found, strict=True):
                    one.copy_(other, non_blocking=True)
            torch.cuda.synchronize()  # else the host could read, or the next portion overwrite, what isn't there yet

    def _update(self, parameters: list[torch.Tensor], moments: list[list[torch.Tensor]], group: dict[str, Any]) -> None:
        count = torch.tensor(float(group["step"]), device=parameters[0].device)
        kernel: Any = getattr(torch, "_fused_adamw_" if self.adam_w_mode else "_fused_adam_")
        kernel(
            parameters,
            [parameter.grad for parameter in parameters],
            *moments,
            [],
            [count] * len(parameters),
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


def _by_type(parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    kinds: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return list(kinds.values())


def _portions(parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    portions: list[list[torch.Tensor]] = [[]]
    held = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if portions[-1] and held + size > PORTION_BYTES:
            portions.append([])
            held = 0
        portions[-1].append(parameter)
        held += size
    return portions


def make_optimizer(args: MegatronArgs, chunks: list[Any], *, offloads: bool) -> Any:
    """Megatron's optimizer: fp32 masters, clipping by the global norm, decay of matrices alone."""
    # Ours also where Apex or TransformerEngine happen to be installed: one kernel and one way to save it everywhere.
    megatron_optimizer.Adam = distrib_optimizer.Adam = Adam
    megatron_optimizer.USING_PYTORCH_OPTIMIZER = False
    distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_APEX_OPTIMIZER = True
    optimizer: Any = get_megatron_optimizer(args.optimizer, chunks, use_gloo_process_groups=False)  # pyright: ignore
    for one in optimizer.chained_optimizers:
        if one.optimizer is not None:  # there is none for experts that a stage hasn't, or that are frozen
            one.optimizer.offloads = offloads
    for group in optimizer.param_groups:  # Megatron leaves its multiplier to its own scheduler, which isn't used
        group["weight_decay"] = args.optimizer.weight_decay * group["wd_mult"]
    return optimizer


def learning_rate(config: OptimizerConfig, num_done: int, *, total_updates: int) -> float:
    """Rate of the update after `num_done` of them.

    Warm-up rises to the full rate at its last update; decay counts from the run's start, so that it ends at
    `decay_steps` whatever the warm-up.
    """
    if num_done < config.warmup_steps:
        return config.learning_rate * (num_done + 1) / config.warmup_steps
    schedule = config.schedule
    if isinstance(schedule, ConstantSchedule):
        return config.learning_rate
    length = (schedule.decay_steps or total_updates) - config.warmup_steps
    share = min(1.0, (num_done - config.warmup_steps) / length) if length > 0 else 1.0
    left = (1 + math.cos(math.pi * share)) / 2 if isinstance(schedule, CosineSchedule) else 1 - share
    return schedule.min_lr + (config.learning_rate - schedule.min_lr) * left
