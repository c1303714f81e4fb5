"""What must hold of `actor.parallel` beside the model, the GPUs and the step's samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rltrain.config.errors import Problem
from rltrain.config.model import ParallelConfig

KEY = "actor.parallel"


class ExpertsFacts(Protocol):
    @property
    def count(self) -> int: ...


class LayerFacts(Protocol):
    """What these rules need to know of a model."""

    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def experts(self) -> ExpertsFacts | None: ...


def layout_problems(parallel: ParallelConfig, model: LayerFacts | None) -> Iterator[Problem]:
    yield from _needs(parallel)
    if model is not None:
        yield from _matrices(parallel, model)
        yield from _stages(parallel, model)
        yield from _experts(parallel, model)


def _problem(parallel: ParallelConfig, name: str, rule: str, hint: str | None = None) -> Problem:
    return Problem(key=f"{KEY}.{name}", rule=rule, value=str(getattr(parallel, name)).lower(), hint=hint)


def _needs(parallel: ParallelConfig) -> Iterator[Problem]:
    """Keys that mean nothing without others."""
    if parallel.sequence and parallel.tensor == 1:
        rule = "splits rows over the tensor ranks, and actor.parallel.tensor is 1"
        yield _problem(parallel, "sequence", rule, "leave it out, or a larger actor.parallel.tensor")
    if parallel.pipeline == 1:
        for name in ("virtual_pipeline", "first_stage_layers", "last_stage_layers"):
            if getattr(parallel, name) not in (None, 1):
                rule = "is of a pipeline's stages, and actor.parallel.pipeline is 1"
                yield _problem(parallel, name, rule, "leave it out, or a larger actor.parallel.pipeline")
    copies = parallel.data * parallel.context
    for name in ("shard_optimizer", "overlap_grad_reduce"):
        if getattr(parallel, name) and copies == 1:
            rule = "is for ranks with the same weights, and actor.parallel.data x context is 1"
            yield _problem(parallel, name, rule, "leave it out")
    if parallel.overlap_param_gather and not (parallel.shard_optimizer and parallel.overlap_grad_reduce):
        rule = "needs actor.parallel.shard_optimizer and actor.parallel.overlap_grad_reduce"
        yield _problem(parallel, "overlap_param_gather", rule, "set both, or leave it out")


def _matrices(parallel: ParallelConfig, model: LayerFacts) -> Iterator[Problem]:
    sizes = {
        "attention heads": model.num_heads,
        "key-value heads": model.num_kv_heads,
        "intermediate size": model.intermediate_size,
    }
    wrong = [f"{size} {what}" for what, size in sizes.items() if size % parallel.tensor]
    if wrong:
        legal = [n for n in range(1, model.num_kv_heads + 1) if not any(size % n for size in sizes.values())]
        rule = f"must divide the model's {' and '.join(wrong)}"
        yield _problem(parallel, "tensor", rule, f"e.g. {' or '.join(map(str, legal))}")


def _stages(parallel: ParallelConfig, model: LayerFacts) -> Iterator[Problem]:
    stages, layers = parallel.pipeline, model.num_layers
    if stages == 1:
        return
    ends = [n for n in (parallel.first_stage_layers, parallel.last_stage_layers) if n is not None]
    left, middle = layers - sum(ends), stages - len(ends)
    if middle == 0 and left != 0:
        rule = (
            f"with actor.parallel.last_stage_layers ({parallel.last_stage_layers}) must add up to the model's {layers} "
        )
        yield _problem(
            parallel, "first_stage_layers", f"{rule}layers, as there are two stages", "leave one of them out"
        )
        return
    if middle and (left < middle or left % middle):
        what = f"{left} layers that first_stage_layers and last_stage_layers leave" if ends else f"{layers} layers"
        rule = f"{middle} stages can't have equal shares of the model's {what}"
        hint = "a divisor, or first_stage_layers and last_stage_layers that leave a multiple"
        yield _problem(parallel, "pipeline", rule, hint)
        return
    shares = {*ends, *([left // middle] if middle else [])}
    if wrong := [share for share in sorted(shares) if share % parallel.virtual_pipeline]:
        rule = f"must divide the layers of every stage, of which one has {wrong[0]}"
        yield _problem(parallel, "virtual_pipeline", rule, "a divisor, e.g. 1")


def _experts(parallel: ParallelConfig, model: LayerFacts) -> Iterator[Problem]:
    if model.experts is None:
        for name, usual in (("expert", 1), ("expert_tensor", None), ("expert_dispatch", "alltoall")):
            if getattr(parallel, name) != usual:
                yield _problem(parallel, name, "is for experts, and the model has none", "leave it out")
        return
    if parallel.tensor > 1 and not parallel.sequence:
        rule = "a model with experts trains on several tensor ranks only with its rows split, too"
        yield _problem(parallel, "sequence", rule, "true")
    if parallel.expert_dispatch == "allgather" and parallel.pipeline > 1:
        rule = "wants as many rows in every micro-batch, and a pipeline's have as many as they need"
        yield _problem(parallel, "expert_dispatch", rule, "alltoall")
    if model.experts.count % parallel.expert:
        rule = f"must divide the model's {model.experts.count} experts"
        yield _problem(parallel, "expert", rule)
    ranks = parallel.tensor * parallel.context * parallel.data
    if ranks % (parallel.expert * parallel.experts_tensor):
        rule = f"expert ({parallel.expert}) x expert_tensor ({parallel.experts_tensor}) must divide tensor x context x "
        rule += f"data = {ranks}, whose ranks the experts are spread over"
        hint = "expert_tensor: 1" if parallel.expert_tensor is None else "other sizes"
        yield Problem(key=f"{KEY}.expert", rule=rule, value=str(parallel.expert), hint=hint)
