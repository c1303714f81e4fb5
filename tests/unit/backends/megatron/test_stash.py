"""Copies of weights come and go without a bit lost."""

from __future__ import annotations

import pytest
import torch

from rltrain.backends.megatron.stash import WeightStash


def make_model(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(dtype)


def values(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_named_weights_are_there_inside_and_the_own_ones_after(dtype: torch.dtype) -> None:
    model = make_model(dtype)
    stash = WeightStash([model])
    saved = values(model)
    stash.save("reference")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    own, places = values(model), [parameter.data_ptr() for parameter in model.parameters()]
    with stash.loaded("reference"):
        assert same(values(model), saved)
    assert same(values(model), own) and not same(own, saved)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    with stash.loaded("reference"):
        assert same(values(model), saved)


def test_an_exception_inside_brings_the_own_weights_back() -> None:
    model = make_model(torch.float32)
    stash = WeightStash([model])
    stash.save("reference")
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
        model[1].weight.mul_(-3)
    before = [tensor.view(torch.int32) for tensor in values(model)]  # a NaN equals itself by its bits
    with pytest.raises(RuntimeError, match="inside"), stash.loaded("reference"):
        assert torch.isfinite(model[0].weight).all()
        raise RuntimeError("inside")
    assert same([tensor.view(torch.int32) for tensor in values(model)], before)


def test_whatever_happens_to_the_weights_inside_is_undone() -> None:
    model = make_model(torch.float32)
    own = values(model)
    with WeightStash([model]).restored():
        for parameter in model.parameters():
            parameter.data.zero_()
    assert same(values(model), own)


def test_a_copy_does_not_follow_the_model() -> None:
    model = make_model(torch.float32)
    stash = WeightStash([model])
    stash.save("start")
    start = values(model)
    with stash.loaded("start"):
        for parameter in model.parameters():
            parameter.data.add_(5)
    with stash.loaded("start"):
        assert same(values(model), start)
