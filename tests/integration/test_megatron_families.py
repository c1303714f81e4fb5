"""Every family against transformers: logits alone, packed and on two ranks; weights back bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tests.integration.megatron_families as families
import tests.integration.megatron_setup as given
from rltrain.types.batch import RolloutBatch

NUM_SAMPLES = 8


@pytest.fixture(scope="module")
def processes() -> Generator[given.RankProcesses]:
    made = given.RankProcesses(2)
    yield made
    made.close()


def logits(worker: Any, batch: RolloutBatch, numbers: Sequence[int]) -> torch.Tensor | None:
    """Of every entry of the samples' sequences, [E, vocabulary]; None before a pipeline's last stage."""
    import torch.distributed as dist

    from rltrain.backends.megatron.micro_batch import MicroBatch
    from rltrain.backends.megatron.passes import collected

    parts, group = worker._parts, worker._parts.place.tensor_group

    def end(hidden: torch.Tensor, micro_batch: MicroBatch) -> torch.Tensor:
        own = hidden @ parts.head().t()
        whole = [torch.empty_like(own) for _ in range(group.size())]
        dist.all_gather(whole, own, group=group)
        return torch.cat(whole, -1)[micro_batch.rows.rows_E, : worker._spec.vocab_size]

    found = collected(parts, [MicroBatch(batch, numbers, parts)], end)
    return found[0] if found else None


def all_logits(worker: Any, batch: RolloutBatch, numbers: Sequence[int]) -> torch.Tensor:
    """Where there is no pipeline."""
    found = logits(worker, batch, numbers)
    assert found is not None
    return found


def expected_logits(model: Any, batch: RolloutBatch) -> torch.Tensor:
    fed = [np.append(batch.prompt_ids[n], batch.response_ids[n][:-1]) for n in range(len(batch))]
    with torch.no_grad():
        return torch.cat([model(torch.from_numpy(ids).long()[None]).logits[0] for ids in fed])


def on_disk(path: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in path.glob("*.safetensors") for name, tensor in load_file(file).items()}


def assert_exported(found: dict[str, torch.Tensor], path: Path) -> None:
    expected = on_disk(path)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("name", families.MODELS)
def test_lgp_06_logits_are_those_of_transformers_packed_and_alone(tmp_path: Path, name: str) -> None:
    """Tolerance 1e-5: fp32 rounding of two implementations, on logits of up to about 10."""
    model = families.save(tmp_path, name)
    batch = given.make_batch(NUM_SAMPLES)
    with given.worker(tmp_path) as worker:
        packed = all_logits(worker, batch, range(len(batch)))
        alone = [all_logits(worker, batch, [number]) for number in range(len(batch))]
        assert_exported(given.weights(worker), tmp_path)
        assert worker._spec.num_parameters == sum(tensor.numel() for tensor in given.weights(worker).values())
    expected = expected_logits(model, batch)
    assert expected.abs().max() > 1
    torch.testing.assert_close(torch.cat(alone), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed, expected, atol=1e-5, rtol=0)


LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor": 2},
    "sequence": {"tensor": 2, "sequence": True},
    "expert tensor": {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1},
    "pipeline": {"pipeline": 2},
    "context": {"context": 2},
    "expert": {"expert": 2, "data": 2},
}
DENSE_LAYOUTS = ("tensor", "pipeline", "context")
SPARSE_LAYOUTS = ("sequence", "expert tensor", "pipeline", "context", "expert")  # Megatron wants the first with experts
CASES = [(name, layout) for name in families.DENSE for layout in DENSE_LAYOUTS] + [
    (name, layout) for name in families.SPARSE for layout in SPARSE_LAYOUTS
]


@dataclass(frozen=True)
class Alone:
    """What one process finds."""

    path: Path
    batch: RolloutBatch
    logits: torch.Tensor
    norm: float
    gradients: dict[str, torch.Tensor]


def gradients(worker: Any) -> dict[str, torch.Tensor]:
    """By Hugging Face names; routers' biases have none."""
    from rltrain.backends.megatron.convert.gather import hf_tensors

    def gradient(tensor: torch.Tensor) -> torch.Tensor:
        return getattr(tensor, "main_grad", torch.zeros_like(tensor))

    return {name: found.clone() for name, found in hf_tensors(worker._parts.chunks, worker._spec, value=gradient)}


def update(worker: Any, batch: RolloutBatch, ranks: int) -> float | None:
    """The gradient's norm, which one rank gives."""
    metrics = worker.update(batch, given.plan_by_count(batch, 3, ranks=ranks))
    return metrics["train/grad_norm"].value if "train/grad_norm" in metrics else None


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Alone]:
    @cache
    def found(name: str) -> Alone:
        path = tmp_path_factory.mktemp(name)
        families.save(path, name)
        batch = given.make_batch(NUM_SAMPLES)
        with given.worker(path, learning_rate=0.0, clip_grad=None) as worker:
            whole = all_logits(worker, batch, range(NUM_SAMPLES))
            norm = update(worker, batch, 1)
            assert norm is not None
            return Alone(path, batch, whole, norm, gradients(worker))

    return found


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_two_ranks_find_what_one_does(
    processes: given.RankProcesses, alone: Callable[[str], Alone], name: str, layout: str
) -> None:
    """Logits to 1e-5; each gradient to 2e-5 of its norm (fp32 sums in another order); weights bit for bit."""
    one, parallel = alone(name), LAYOUTS[layout]
    setup = given.train_setup(one.path, parallel=parallel, learning_rate=0.0, clip_grad=None)
    context = "context" in parallel  # has hidden states of some rows on each rank
    calls: list[given.Call] = [
        (given.weights,),
        *([] if context else [(logits, one.batch, range(NUM_SAMPLES))]),
        (update, one.batch, parallel.get("data", 1)),
        (gradients,),
    ]
    ranks = processes.run(given.train, setup, calls)
    for results in ranks:
        assert_exported(results[0], one.path)
        found = results[-1]
        assert found.keys() == one.gradients.keys()
        for name_, gradient in one.gradients.items():
            error, own = torch.linalg.vector_norm(found[name_] - gradient), torch.linalg.vector_norm(gradient)
            assert error <= 2e-5 * own + 1e-7 * one.norm, name_
        if not context and results[1] is not None:
            real = results[1][: len(one.logits)]  # behind them lie rows that make the count even
            torch.testing.assert_close(real, one.logits, atol=1e-5, rtol=0)
    (norm,) = {results[-2] for results in ranks} - {None}
    assert norm == pytest.approx(one.norm, rel=1e-5)
