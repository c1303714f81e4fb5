"""Loads a full set of Hugging Face weights into a running vLLM model, and knows when some are missing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

import torch
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.platforms import current_platform

# It warns of every rotary embedding and tied head; `incomplete_layers` tells those from weights that are missing.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)


DERIVED = frozenset({"W_UV", "W_UK_T"})
"""Parameters that vLLM computes from others, for latent attention."""


class Reload(Protocol):
    """One sync: `load` any number of times, then `finish`. The model is unusable in between."""

    keeps_tensors: bool
    """What was given to `load` must stay as it is until `finish`."""

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None: ...

    def finish(self) -> None: ...


def start_reload(model: Any, model_config: Any) -> Reload:
    """On a GPU the parameters are the checkpoint's tensors, merged at most, and are written in place; what a CPU packs
    and what experts shuffle after loading has to go through vLLM's reload."""
    packed = current_platform.is_cpu() or any("Experts" in type(layer).__name__ for layer in model.modules())
    return LayerwiseReload(model, model_config) if packed else InPlaceReload(model)


class InPlaceReload:
    """Into the live parameters. That none is missing, `missing_names` tells before the first sync."""

    keeps_tensors = False

    def __init__(self, model: Any) -> None:
        self._model = model

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._model.load_weights(weights)

    def finish(self) -> None:
        """All of it is done."""


class LayerwiseReload:
    """A layer at a time, as vLLM does it: load what is complete, process it, copy it into the live tensors."""

    keeps_tensors = True

    def __init__(self, model: Any, model_config: Any) -> None:
        self._model = model
        self._model_config = model_config
        initialize_layerwise_reload(model)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """vLLM keeps the tensors until a layer is complete."""
        self._model.load_weights(weights)

    def finish(self) -> None:
        """Raises ValueError with the names of layers that got less than all of their weights."""
        missing = incomplete_layers(self._model)
        finalize_layerwise_reload(self._model, self._model_config)
        if missing:
            raise ValueError(f"weights didn't fill {', '.join(missing)}")
        _forget_joined_gates(self._model)
        if current_platform.is_cpu():
            _repack_on_cpu(self._model)


def incomplete_layers(model: Any) -> list[str]:
    """Layers of a started reload whose parameters miss elements, but for tied ones, which get none."""
    tied = _tied_modules(model)
    found: list[str] = []
    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
        if info.can_load() and info.load_numel < own and name not in tied:  # can't: it was complete and is done with
            found.append(f"{name} ({info.load_numel} of {own} elements)")
    return found


def missing_names(model: Any, planned: Collection[str]) -> list[str]:
    """Checkpoint names that the model needs and that aren't planned, sorted.

    A merged parameter is filled by its parts or in one; one that several modules share, under any of their names.
    """
    tied = _tied_modules(model)
    ways: dict[int, list[frozenset[str]]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        module, _, leaf = name.rpartition(".")
        if module not in tied and leaf not in DERIVED:
            ways.setdefault(id(parameter), []).extend(_ways(name, model))
    unfilled = [found for found in ways.values() if not any(way.issubset(planned) for way in found)]
    nearest = (min(found, key=lambda way: (way.isdisjoint(planned), len(way - set(planned)))) for found in unfilled)
    return sorted({name for way in nearest for name in way.difference(planned)})


def _ways(name: str, model: Any) -> Iterator[frozenset[str]]:
    """Sets of checkpoint names that each fill a parameter."""
    module, _, leaf = name.rpartition(".")
    parent, _, last = module.rpartition(".")
    layer = model.get_submodule(module)
    if hasattr(layer, "get_expert_mapping"):
        block = parent.rpartition(".")[0]  # `experts` comes again in the mapping's names
        parts = {part for target, part, *_ in layer.get_expert_mapping() if leaf.startswith(target.rpartition(".")[2])}
        yield frozenset(f"{block}.{part}weight" for part in parts)
        return
    merged: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    if last in merged:
        yield frozenset(".".join(filter(None, (parent, part, leaf))) for part in merged[last])
    yield frozenset([name])


def _tied_modules(model: Any) -> set[str]:
    """Modules that no checkpoint name fills, since they use another's weight."""
    return {"lm_head"} if getattr(model.config, "tie_word_embeddings", False) else set()


def _forget_joined_gates(model: Any) -> None:
    """vLLM 0.32 joins the router's weight and the shared expert's gate at the first pass, and keeps the copy."""
    for layer in model.modules():
        if getattr(layer, "_combined_gate_weight", None) is not None:
            layer._combined_gate_weight = None


def _repack_on_cpu(model: Any) -> None:
    """vLLM 0.32 leaves two packed copies stale after a reload, silently.

    A tied lm_head: no checkpoint name maps to it, so its packed weight stays the old embedding's. Fused experts: their
    packing runs at the first load only. Packing experts twice is wrong, so this is for complete reloads alone.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if hasattr(layer, "cpu_linear") and weight is not None and weight.numel() > 0:
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
        kernel = getattr(getattr(layer, "quant_method", None), "moe_kernel", None)
        if type(layer).__name__ == "RoutedExperts" and kernel is not None:
            kernel.fused_experts.process_weights_after_loading(layer)
