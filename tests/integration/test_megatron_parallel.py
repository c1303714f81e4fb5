"""Every way to share the work between ranks against one process: the same losses, gradient norms and log-probs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.integration.megatron_families as families
import tests.integration.megatron_setup as given
from rltrain.config.model import FullRecompute, ParallelConfig, SelectiveRecompute
from rltrain.types.metrics import merged

OVERLAP = {"overlap_grad_reduce": True}
SHARDED = {"shard_optimizer": True}
ALL_OVERLAP = SHARDED | OVERLAP | {"overlap_param_gather": True}
SMALL_BUCKETS = {"ddp": {"bucket_size": 20_000}}
UPDATES = 3


@dataclass(frozen=True)
class Outcome:
    steps: tuple[tuple[float, float], ...]
    """Loss and gradient norm of each update."""
    logprobs: np.ndarray
    """Before the first update, of all samples in order."""


def three_updates(rank: int, ranks: int, port: int, setup: Any, batch: Any, plan: Any) -> tuple[Any, list[Any]]:
    worker = given.new_worker(setup, rank=rank, ranks=ranks, port=port)
    try:
        return worker.logprobs(batch, plan, model="actor"), [worker.update(batch, plan) for _ in range(UPDATES)]
    finally:
        worker.close()


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Generator[Run]:
    """Three updates of a tiny model in a layout, by processes that stay."""
    processes = given.RankProcesses(4)
    batch = given.make_batch()

    @cache
    def saved(kind: str) -> Path:
        path = tmp_path_factory.mktemp(kind)
        if kind == "experts":
            families.save(path, "qwen3-moe")
        elif kind == "experts above":
            families.save(path, "qwen3-moe", mlp_only_layers=[0, 1])
        else:
            given.save_model(path, "Qwen3", tied=kind == "tied", num_hidden_layers=4)
        return path

    def outcome(parallel: dict[str, Any], *, kind: str = "tied", **changes: Any) -> Outcome:
        layout = ParallelConfig(**parallel)
        setup = given.train_setup(saved(kind), parallel=parallel, learning_rate=2e-3, **changes)
        plan = given.plan_of(batch, cap=120, ranks=layout.data, multiple_of=layout.micro_batch_multiple)
        results = processes.run(three_updates, setup, batch, plan, ranks=layout.world_size)
        metrics = [merged([updates[number] for _, updates in results]) for number in range(UPDATES)]
        rows: dict[int, np.ndarray] = {}
        for (numbers, found), _ in results:
            rows |= {number: found[place] for place, number in enumerate(numbers.tolist())}
        assert sorted(rows) == list(range(len(batch)))
        steps = tuple((step["train/loss"].value, step["train/grad_norm"].value) for step in metrics)
        return Outcome(steps, np.concatenate([rows[number] for number in range(len(batch))]))

    yield outcome
    processes.close()


@pytest.fixture(scope="module")
def alone(run: Run) -> Run:
    """The same by one process, which computes a micro-batch after the other and keeps all activations."""
    return cache(lambda kind="tied", dtype="float32": run({}, kind=kind, dtype=dtype))


def case(name: str, parallel: dict[str, Any], **changes: Any) -> Any:
    return pytest.param(parallel, changes, id=name)


@pytest.mark.parametrize(
    ("parallel", "changes"),
    [
        case("tp2", {"tensor": 2}),
        case("tp2 sp", {"tensor": 2, "sequence": True}),
        case("tp2 sp untied", {"tensor": 2, "sequence": True}, kind="untied"),
        case("pp2", {"pipeline": 2}),
        case("pp2 untied", {"pipeline": 2}, kind="untied"),
        case("pp2 vpp2", {"pipeline": 2, "virtual_pipeline": 2}),
        case("pp2 first stage of 1", {"pipeline": 2, "first_stage_layers": 1}),
        case("pp2 last stage of 1", {"pipeline": 2, "last_stage_layers": 1}),
        case("cp2", {"context": 2}),
        case("cp2 untied", {"context": 2}, kind="untied"),
        case("dp2", {"data": 2}),
        case("dp2 overlap", {"data": 2} | OVERLAP, megatron=SMALL_BUCKETS),
        case("dp2 sharded", {"data": 2} | SHARDED),
        case("dp2 sharded overlap", {"data": 2} | ALL_OVERLAP, megatron=SMALL_BUCKETS),
        case("dp2 sharded overlap untied", {"data": 2} | ALL_OVERLAP, kind="untied", megatron=SMALL_BUCKETS),
        case("tp2 sp recompute", {"tensor": 2, "sequence": True}, recompute=FullRecompute()),
        case("pp2 recompute", {"pipeline": 2}, recompute=FullRecompute(layers=2)),
        case("cp2 recompute attention", {"context": 2}, recompute=SelectiveRecompute()),
        case("tp2 sp recompute mlp", {"tensor": 2, "sequence": True}, recompute=SelectiveRecompute(modules=("mlp",))),
        case("tp2 pp2 sp", {"tensor": 2, "sequence": True, "pipeline": 2}),
        case("tp2 pp2 untied", {"tensor": 2, "pipeline": 2}, kind="untied"),
        case("tp2 cp2 sp", {"tensor": 2, "sequence": True, "context": 2}),
        case("tp2 cp2", {"tensor": 2, "context": 2}),
        case("tp2 sp dp2 sharded overlap", {"tensor": 2, "sequence": True, "data": 2} | ALL_OVERLAP),
        case("pp2 cp2 sharded", {"pipeline": 2, "context": 2} | SHARDED),
        case("cp2 dp2 sharded overlap", {"context": 2, "data": 2} | ALL_OVERLAP),
        case("cp4", {"context": 4}),
        case("pp4", {"pipeline": 4}),
        case("dp4 sharded", {"data": 4} | SHARDED),
        case("pp2 vpp2 dp2 sharded overlap", {"pipeline": 2, "virtual_pipeline": 2, "data": 2} | ALL_OVERLAP),
        case("pp2 vpp2 cp2", {"pipeline": 2, "virtual_pipeline": 2, "context": 2}, recompute=FullRecompute()),
        case("pp2 vpp2 tp2 sp", {"pipeline": 2, "virtual_pipeline": 2, "tensor": 2, "sequence": True}),
        case("pp2 dp2 uneven", {"pipeline": 2, "last_stage_layers": 3, "data": 2} | ALL_OVERLAP, kind="untied"),
    ],
)
def test_cpx_01_any_layout_takes_the_steps_of_one_process(
    run: Run, alone: Run, parallel: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Losses and norms to 1e-5 relative and log-probs to 1e-5: fp32 sums in another order."""
    found, expected = run(parallel, **changes), alone(changes.get("kind", "tied"))
    np.testing.assert_allclose(found.logprobs, expected.logprobs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.steps, expected.steps, rtol=1e-5)


SPLIT = {"tensor": 2, "sequence": True}


@pytest.mark.parametrize(
    ("parallel", "changes"),
    [
        case("ep2", {"data": 2, "expert": 2}),
        case("ep2 sharded", {"data": 2, "expert": 2} | SHARDED),
        case("ep2 allgather", {"data": 2, "expert": 2, "expert_dispatch": "allgather"}),
        case("tp2 sp", SPLIT),
        case("tp2 sp ep2 etp1", SPLIT | {"expert": 2, "expert_tensor": 1}),
        case("tp2 sp etp2 allgather", SPLIT | {"expert_tensor": 2, "expert_dispatch": "allgather"}),
        case("cp2 ep2", {"context": 2, "expert": 2}),
        case("pp2 recompute", {"pipeline": 2}, recompute=FullRecompute()),
        case("tp2 sp dp2 ep4 etp1 sharded", SPLIT | {"data": 2, "expert": 4, "expert_tensor": 1} | SHARDED),
        case("tp2 pp2 sp ep2 etp1 sharded", SPLIT | {"pipeline": 2, "expert": 2, "expert_tensor": 1} | SHARDED),
        case("dp4 ep2 sharded overlap", {"data": 4, "expert": 2} | ALL_OVERLAP),
        case("cp2 dp2 ep4 allgather", {"context": 2, "data": 2, "expert": 4, "expert_dispatch": "allgather"}),
        case("pp2 vpp2 dp2 ep2", {"pipeline": 2, "virtual_pipeline": 2, "data": 2, "expert": 2}),
        case("a stage without experts", {"pipeline": 2, "data": 2, "expert": 2} | SHARDED, kind="experts above"),
    ],
)
def test_moe_06_so_does_any_layout_of_a_mixture_of_experts(
    run: Run, alone: Run, parallel: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Tolerances as above. Ranks that share experts have micro-batches of different lengths."""
    kind = changes.pop("kind", "experts")
    found, expected = run(parallel, kind=kind, **changes), alone(kind)
    np.testing.assert_allclose(found.logprobs, expected.logprobs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.steps, expected.steps, rtol=1e-5)


@pytest.mark.parametrize(
    "parallel",
    [{"data": 2}, {"data": 2} | ALL_OVERLAP, {"tensor": 2, "sequence": True}, {"context": 2}, {"pipeline": 2}],
    ids=str,
)
def test_in_bfloat16_too(run: Run, alone: Run, parallel: dict[str, Any]) -> None:
    """Tolerance 2e-3 of the first update, whose weights are still the same; later ones round apart."""
    found, expected = run(parallel, dtype="bfloat16"), alone(dtype="bfloat16")
    np.testing.assert_allclose(found.steps[0], expected.steps[0], rtol=2e-3)
    np.testing.assert_allclose(found.steps, expected.steps, rtol=2e-2)
