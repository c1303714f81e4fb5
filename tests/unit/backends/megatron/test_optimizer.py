"""The course of the learning rate, and Adam against torch's."""

from __future__ import annotations

import pytest
import torch

from rltrain.backends.megatron import shim
from rltrain.config.model import ConstantSchedule, CosineSchedule, LinearSchedule, OptimizerConfig

shim.install()

from rltrain.backends.megatron import optimizer  # noqa: E402
from rltrain.backends.megatron.optimizer import Adam, learning_rate  # noqa: E402


@pytest.mark.parametrize(("step", "expected"), [(22, 1e-6), (121, 5e-7), (198, 3.0154e-8), (220, 0.0)])
def test_ckp_08_decay_ends_where_the_run_does(step: int, expected: float) -> None:
    config = OptimizerConfig(learning_rate=1e-6, warmup_steps=22, schedule=CosineSchedule())
    assert learning_rate(config, step, total_updates=220) == pytest.approx(expected, rel=1e-4, abs=1e-20)


def test_warm_up_rises_from_the_first_update() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4, schedule=ConstantSchedule())
    assert [learning_rate(config, step, total_updates=9) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_decay_goes_to_min_lr_and_stays() -> None:
    config = OptimizerConfig(learning_rate=1.0, schedule=LinearSchedule(min_lr=0.5, decay_steps=4))
    assert [learning_rate(config, step, total_updates=9) for step in (0, 2, 4, 8)] == [1.0, 0.75, 0.5, 0.5]


@pytest.mark.parametrize("offloads", [False, True])
def test_adam_is_torchs_adamw(monkeypatch: pytest.MonkeyPatch, offloads: bool) -> None:
    monkeypatch.setattr(optimizer, "PORTION_BYTES", 50)  # one of the two
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4))]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    optimizers = [Adam(ours, lr=0.1, weight_decay=0.1), torch.optim.AdamW(theirs, lr=0.1, weight_decay=0.1)]
    optimizers[0].offloads = offloads
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for one in optimizers:
            one.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
