"""Megatron-core on a machine without CUDA: everything that it expects of `torch.cuda`, in one place.

Does nothing where CUDA is available. `install()` comes before the first import of megatron.core, once a process.
Two mechanisms: functions of `torch.cuda`, all of which raise without CUDA anyway, and a TorchFunctionMode that turns
`device="cuda"` and `.cuda()` into the CPU and answers the dtype strings that Megatron's optimizer compares.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

Method = TypeVar("Method", bound=Callable[..., Any])
CPU = torch.device("cpu")


class _Stream:
    """Everything on a CPU is done when the call returns."""

    device = CPU

    def __init__(self, *_args: object, **_options: object) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, event: object = None) -> object:
        return event or _Event()


class _Event:
    def __init__(self, *_args: object, **_options: object) -> None: ...

    def record(self, stream: object = None) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def synchronize(self) -> None: ...


class _CudaIsCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if _is_cuda(kwargs.get("device")):
            kwargs = kwargs | {"device": CPU}
        if func is torch.Tensor.to and len(args) > 1 and _is_cuda(args[1]):
            args = (args[0], CPU, *args[2:])
        found = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(found, str) and _called_by_megatron():
            return found.replace("torch.", "torch.cuda.", 1)
        return found


class _Local(threading.local):
    mode: TorchFunctionMode | None = None


_local = _Local()


def install() -> None:
    """Puts the CPU in CUDA's place and imports megatron.core; repeats do nothing."""
    if torch.cuda.is_available() or torch.cuda.Stream is _Stream:
        return
    stream = _Stream()
    replacements: dict[str, Any] = {
        "current_device": lambda: CPU,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "Stream": _Stream,
        "Event": _Event,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
        "get_device_capability": lambda device=None: (0, 0),
    }
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    activate_thread()
    _import_megatron()


def activate_thread() -> None:
    """TorchFunctionModes belong to a thread: each one that runs Megatron calls this."""
    if not torch.cuda.is_available() and _local.mode is None:
        _local.mode = _CudaIsCpu()
        _local.mode.__enter__()


def on_device(method: Method) -> Method:
    """For methods that may be called on any thread."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        activate_thread()
        return method(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


def _import_megatron() -> None:
    compile_ = torch.compile
    # Megatron's jit_fuser is torch.compile: eager needs no C++ compiler and spares the import of inductor.
    torch.compile = lambda model=None, **_: (lambda function: function) if model is None else model  # pyright: ignore
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TransformerEngine and Apex are missing
            import megatron.core.tensor_parallel.random as random
    finally:
        torch.compile = compile_
    # Around recomputed layers: the originals ask CUDA's generator, the second by a queue that never runs here.
    random._get_cuda_rng_state = lambda device="cuda", clone=False, graph_safe=False: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)
    logging.getLogger(random.__name__).addFilter(lambda record: "CPU RNG state changed" not in record.getMessage())


def _is_cuda(device: object) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


def _called_by_megatron() -> bool:
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("megatron.core.")
