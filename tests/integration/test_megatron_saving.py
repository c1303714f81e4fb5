"""Saved steps of a model: any layout goes on with what any other one wrote."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_families as families
import tests.integration.megatron_setup as given
from rltrain.backends.megatron.setup import SavedStart
from rltrain.checkpoint.pieces import SavedTensors
from rltrain.config.errors import UserError
from rltrain.config.model import ParallelConfig
from rltrain.types.errors import RunError
from rltrain.types.metrics import merged

SHARDED = {"shard_optimizer": True}
ALL_OVERLAP = SHARDED | {"overlap_grad_reduce": True, "overlap_param_gather": True}
SPLIT = {"tensor": 2, "sequence": True}
KINDS = ("weight", "exp_avg", "exp_avg_sq")
UPDATES = 2


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {name: tmp_path_factory.mktemp(name) for name in ("tied", "experts", "bias")}
    given.save_model(paths["tied"], "Qwen3", tied=True, num_hidden_layers=4)
    families.save(paths["experts"], "qwen3-moe")
    families.save(paths["bias"], "deepseek-v3")
    return paths


@pytest.fixture(scope="module")
def processes() -> Generator[given.RankProcesses]:
    made = given.RankProcesses(4)
    yield made
    made.close()


def save(worker: Any, directory: Path, *, moments: bool = True) -> None:
    worker.save(str(directory), moments=moments)
    worker.finish_save()


def start(directory: Path, *, moments: bool = True) -> SavedStart:
    return SavedStart(directory=directory, key="--resume", moments=moments, num_updates=UPDATES)


Go = Callable[..., tuple[float, float]]


@pytest.fixture(scope="module")
def go(models: dict[str, Path], processes: given.RankProcesses) -> Go:
    """Some updates in a layout, a save, and one more update: its loss and gradient norm."""
    batch = given.make_batch()

    def run(kind: str, layout: dict[str, Any], to: Path, *, updates: int = 0, **changes: Any) -> tuple[float, float]:
        parallel = ParallelConfig(**layout)
        setup = given.train_setup(models[kind], parallel=layout, learning_rate=2e-3, **changes)
        plan = given.plan_of(batch, cap=120, ranks=parallel.data, multiple_of=parallel.micro_batch_multiple)
        calls = [*[("update", batch, plan)] * updates, (save, to), ("update", batch, plan)]
        results = processes.run(given.train, setup, calls, ranks=parallel.world_size)
        metrics = merged([found[-1] for found in results])
        return metrics["train/loss"].value, metrics["train/grad_norm"].value

    return run


def assert_same_tensors(found: Path, expected: Path) -> None:
    one, other = SavedTensors(found), SavedTensors(expected)
    for kind in KINDS:
        assert dict(one.shapes(kind)) == dict(other.shapes(kind))
        assert all(torch.equal(one.part(kind, name)[:], other.part(kind, name)[:]) for name in one.shapes(kind))


LAYOUTS = {
    "tied": (
        SPLIT | {"pipeline": 2},
        [
            {},
            {"data": 2} | SHARDED,
            {"context": 2} | SHARDED,
            SPLIT | {"data": 2} | ALL_OVERLAP,
            {"pipeline": 2, "virtual_pipeline": 2, "context": 2},
        ],
    ),
    "experts": (
        SPLIT | {"pipeline": 2},
        [
            {},
            {"data": 2, "expert": 2} | SHARDED,
            SPLIT | {"pipeline": 2, "expert": 2, "expert_tensor": 1} | SHARDED,
            {"data": 4, "expert": 2} | ALL_OVERLAP,
        ],
    ),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_any_layout_goes_on_with_what_any_other_one_wrote(kind: str, go: Go, tmp_path: Path) -> None:
    """Each layout of the list starts from what the one before it wrote. Tensors bit-equal; the next step's loss and
    gradient norm to 1e-5 relative: fp32 sums in another order."""
    first, others = LAYOUTS[kind]
    expected = go(kind, first, tmp_path / "0", updates=UPDATES)
    for number, layout in enumerate([*others, first], start=1):
        before, to = tmp_path / str(number - 1), tmp_path / str(number)
        np.testing.assert_allclose(go(kind, layout, to, start=start(before)), expected, rtol=1e-5, err_msg=str(layout))
        assert_same_tensors(to, tmp_path / "0")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("tied", {}),
        ("tied", {"dtype": "bfloat16"}),
        ("tied", {"dtype": "bfloat16", "offload": True}),
        ("tied", {"role_changes": {"train_only": ["self_attn"]}}),
        ("experts", {"dtype": "bfloat16"}),
        ("bias", {}),
    ],
    ids=str,
)
def test_one_process_goes_on_bit_for_bit(kind: str, changes: dict[str, Any], models: Any, tmp_path: Path) -> None:
    batch, setting = given.make_batch(), {"learning_rate": 2e-3, "deterministic": True} | changes
    plan = given.plan_of(batch, cap=120)
    with given.worker(models[kind], **setting) as worker:
        for _ in range(UPDATES):
            worker.update(batch, plan)
        save(worker, tmp_path)
        random = torch.rand(4)
        expected, weights = worker.update(batch, plan), given.weights(worker)
    with given.worker(models[kind], **setting, start=start(tmp_path)) as worker:
        assert torch.equal(torch.rand(4), random)
        found, after = worker.update(batch, plan), given.weights(worker)
    assert {name: metric.value for name, metric in found.items()} == {
        name: metric.value for name, metric in expected.items()
    }
    assert all(torch.equal(after[name], tensor) for name, tensor in weights.items())


def test_what_is_saved_is_the_state_of_its_moment(models: dict[str, Path], tmp_path: Path) -> None:
    """Updates follow while the file is being written."""
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=120)
    with given.worker(models["tied"], learning_rate=2e-3) as worker:
        worker.update(batch, plan)
        expected = given.weights(worker)
        worker.save(str(tmp_path), moments=True)
        worker.update(batch, plan)
        worker.finish_save()
    saved = SavedTensors(tmp_path)
    assert all(torch.equal(saved.part("weight", name)[:], tensor) for name, tensor in expected.items())


def test_ckp_07_without_the_moments_the_schedule_begins_anew(models: dict[str, Path], tmp_path: Path) -> None:
    """Warm-up included; fp32 masters are those that were saved, bit for bit."""
    batch = given.make_batch()
    plan, setting = given.plan_of(batch, cap=120), {"warmup_steps": 5, "dtype": "bfloat16"}
    with given.worker(models["tied"], **setting) as worker:
        first = worker.update(batch, plan)
        save(worker, tmp_path / "a", moments=False)
    assert not SavedTensors(tmp_path / "a").shapes("exp_avg")
    with given.worker(models["tied"], **setting, start=start(tmp_path / "a", moments=False)) as worker:
        save(worker, tmp_path / "b", moments=False)
        assert worker.update(batch, plan)["train/lr"].value == first["train/lr"].value
    one, other = SavedTensors(tmp_path / "a"), SavedTensors(tmp_path / "b")
    assert all(torch.equal(one.part("weight", n)[:], other.part("weight", n)[:]) for n in one.shapes("weight"))


def test_moments_that_are_asked_for_and_not_there_are_named(models: dict[str, Path], tmp_path: Path) -> None:
    with given.worker(models["tied"]) as worker:
        save(worker, tmp_path, moments=False)
    with pytest.raises(UserError, match=r"--resume: has no exp_avg of model\."):
        given.new_worker(given.train_setup(models["tied"], start=start(tmp_path)))


def test_ckp_09_the_reference_is_the_base_at_every_start(models: dict[str, Path], tmp_path: Path) -> None:
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=120)
    with given.worker(models["tied"], needs_reference=True) as worker:
        _, before = worker.logprobs(batch, plan, model="reference")
        worker.update(batch, plan)
        save(worker, tmp_path)
        _, actor = worker.logprobs(batch, plan, model="actor")
    with given.worker(models["tied"], needs_reference=True, start=start(tmp_path)) as worker:
        _, after = worker.logprobs(batch, plan, model="reference")
        _, own = worker.logprobs(batch, plan, model="actor")
    assert np.array_equal(after.values, before.values)
    assert np.array_equal(own.values, actor.values)
    assert not np.array_equal(own.values, after.values)


def test_another_model_s_saved_step_is_refused_by_tensor(models: dict[str, Path], tmp_path: Path) -> None:
    with given.worker(models["tied"]) as worker:
        save(worker, tmp_path)
    with pytest.raises(UserError, match=r"--resume: lacks the tensor model\.layers\.1\.mlp\.experts"):
        given.new_worker(given.train_setup(models["experts"], start=start(tmp_path)))


def test_wsy_08_a_weight_that_is_not_finite_is_not_saved(models: dict[str, Path], tmp_path: Path) -> None:
    with given.worker(models["tied"]) as worker:
        dict(worker._parts.chunks[0].named_parameters())["decoder.final_layernorm.weight"].data[3] = torch.nan
        with pytest.raises(RunError, match=r"weight of model\.norm\.weight isn't finite"):
            save(worker, tmp_path)
    assert not list(tmp_path.iterdir())
