"""The CPU in CUDA's place, and only where CUDA isn't."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from rltrain.backends.megatron import shim

WITH_CUDA = """
import sys
import torch
torch.cuda.is_available = lambda: True
before = dict(vars(torch.cuda))
from rltrain.backends.megatron import shim
shim.install()
shim.activate_thread()
assert dict(vars(torch.cuda)) == before
assert not any(name.startswith("megatron") for name in sys.modules)
assert not torch.overrides._get_current_function_mode_stack()
"""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    shim.install()
    shim.activate_thread()


def test_nothing_is_replaced_where_cuda_is() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_CUDA], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_cuda_means_the_cpu() -> None:
    tensor = torch.ones(2)
    assert torch.zeros(2, device="cuda").device.type == "cpu"
    assert torch.empty(2, device=torch.device("cuda", 0)).device.type == "cpu"
    assert tensor.cuda() is tensor
    assert tensor.to("cuda").device.type == "cpu"
    assert tensor.to("cuda", torch.float64).dtype == torch.float64
    assert torch.nn.Linear(2, 2).to(torch.cuda.current_device()).weight.device.type == "cpu"


def test_installing_again_changes_nothing() -> None:
    before = dict(vars(torch.cuda))
    shim.install()
    assert dict(vars(torch.cuda)) == before


def test_only_megatron_is_told_of_cuda_types() -> None:
    """Its optimizer sorts parameters by the names of CUDA's tensor types."""
    ask = {"__name__": "megatron.core.asking"}
    exec("def kind(tensor):\n    return tensor.type()", ask)
    assert ask["kind"](torch.zeros(1)) == "torch.cuda.FloatTensor"
    assert torch.zeros(1).type() == "torch.FloatTensor"
    assert torch.zeros(1).type(torch.float64).dtype == torch.float64


def test_a_method_on_device_works_on_any_thread() -> None:
    def make() -> str:
        return torch.zeros(1, device="cuda").device.type

    found: dict[str, object] = {}

    def run(name: str, function: object) -> None:
        try:
            found[name] = function()  # type: ignore[operator]
        except (AssertionError, RuntimeError) as error:
            found[name] = type(error)

    for name, function in (("plain", make), ("on device", shim.on_device(make))):
        thread = threading.Thread(target=run, args=(name, function))
        thread.start()
        thread.join()
    assert found["on device"] == "cpu"
    assert found["plain"] in (AssertionError, RuntimeError)


def test_random_states_are_the_cpus() -> None:
    state = torch.cuda.get_rng_state()
    first = torch.rand(3)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
