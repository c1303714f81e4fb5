"""Adam on torch's fused kernel, Megatron's optimizer around it, and the course of the learning rate."""

from __future__ import annotations

import math
from typing import Any

import megatron.core.optimizer as megatron_optimizer
import torch
from megatron.core.optimizer import distrib_optimizer, get_megatron_optimizer

from rltrain.backends.megatron.args import MegatronArgs
from rltrain.config.model import ConstantSchedule, CosineSchedule, OptimizerConfig


class Adam(torch.optim.Optimizer):
    """AdamW with the state layout of Apex, `step` in the parameter group.

    With torch's own AdamW, Megatron's distributed optimizer can't load what it saved and shares one step count.
    """

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
                self._step(same, group)

    def _step(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        count = torch.tensor(float(group["step"]), device=parameters[0].device)
        kernel: Any = getattr(torch, "_fused_adamw_" if self.adam_w_mode else "_fused_adam_")
        kernel(
            parameters,
            [parameter.grad for parameter in parameters],
            [self.state[parameter]["exp_avg"] for parameter in parameters],
            [self.state[parameter]["exp_avg_sq"] for parameter in parameters],
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


def make_optimizer(args: MegatronArgs, model: torch.nn.Module) -> Any:
    """Megatron's optimizer: fp32 masters, clipping by the global norm, decay of matrices alone."""
    if not distrib_optimizer.HAVE_APEX_OR_TE:
        megatron_optimizer.Adam = distrib_optimizer.Adam = Adam
        megatron_optimizer.USING_PYTORCH_OPTIMIZER = False
        distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_APEX_OPTIMIZER = True
    optimizer: Any = get_megatron_optimizer(args.optimizer, [model], use_gloo_process_groups=False)  # pyright: ignore
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
