"""The training worker against transformers and against itself in other layouts; real Megatron on CPU processes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.config.errors import UserError
from rltrain.types.batch import Ragged, RolloutBatch

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
Make = Callable[..., Any]


@pytest.fixture
def make_worker() -> Generator[Make]:
    """One worker at a time: a process has one process group."""
    made: list[Any] = []

    def make(path: Path, **changes: Any) -> Any:
        while made:
            made.pop().close()
        made.append(given.new_worker(given.train_setup(path, **changes)))
        return made[-1]

    yield make
    while made:
        made.pop().close()


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3")
    given.save_model(path, "Qwen3", tied=True)
    return path


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def reference_logprobs(model: Any, batch: RolloutBatch, temperature: float) -> np.ndarray:
    """Each sample alone through transformers."""
    found: list[np.ndarray] = []
    for number in range(len(batch)):
        prompt, response = batch.prompt_ids[number], batch.response_ids[number]
        ids = torch.from_numpy(np.concatenate([prompt, response])).long()
        with torch.no_grad():
            logits = model(ids[None]).logits[0].float() / temperature
        scores = logits[:-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        found.append(scores[len(prompt) - 1 :].numpy())
    return np.concatenate(found)


def in_order(batch: RolloutBatch, numbers: np.ndarray, ragged: Ragged[np.float32]) -> np.ndarray:
    rows = dict(zip(numbers.tolist(), (ragged[i] for i in range(len(ragged))), strict=True))
    return np.concatenate([rows[number] for number in range(len(batch))])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"rope_parameters": LLAMA3}),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
        ("Qwen2", {}),
        ("Qwen3", {}),
    ],
)
def test_lgp_06_packed_logprobs_are_those_of_each_sequence_alone(
    make_worker: Make, tmp_path: Path, family: str, changes: dict[str, Any], tied: bool
) -> None:
    """Tolerance: fp32 rounding of two implementations."""
    model = given.save_model(tmp_path, family, tied=tied, **changes)
    worker = make_worker(tmp_path, temperature=0.7)
    batch = given.make_batch()
    numbers, found = worker.logprobs(batch, given.plan_of(batch, cap=200), model="actor")
    np.testing.assert_allclose(in_order(batch, numbers, found), reference_logprobs(model, batch, 0.7), atol=1e-5)
    own = dict(model.named_parameters())
    assert_equal(given.weights(worker), {name: own[name].detach() for name in given.weights(worker)})
    assert set(own) == set(given.weights(worker))


def test_pak_06_logprobs_do_not_depend_on_batch_mates(make_worker: Make, qwen3: Path) -> None:
    worker = make_worker(qwen3)
    batch = given.make_batch()
    together = in_order(batch, *worker.logprobs(batch, given.plan_of(batch, cap=10_000), model="actor"))
    alone = in_order(batch, *worker.logprobs(batch, given.plan_of(batch, cap=50), model="actor"))
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_export_loads_again_bit_for_bit(make_worker: Make, qwen3: Path, tmp_path: Path) -> None:
    (qwen3 / "tokenizer.json").write_bytes(b"any bytes\r\n")
    worker = make_worker(qwen3)
    batch = given.make_batch()
    worker.update(batch, given.plan_of(batch, cap=200))
    trained = given.weights(worker)
    worker.export_hf(str(tmp_path / "out"))
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == b"any bytes\r\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert_equal(given.weights(make_worker(tmp_path / "out")), trained)


def test_tensors_that_do_not_fit_are_named(make_worker: Make, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    given.save_model(tmp_path, "Llama", tied=False)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:-1].clone()
    tensors["model.extra.weight"] = torch.zeros(2)
    save_file(tensors, file)
    with pytest.raises(UserError) as caught:
        make_worker(tmp_path)
    text = str(caught.value)
    assert "lacks the tensor model.norm.weight" in text
    assert "lm_head.weight has shape [95, 48], the model needs [96, 48]" in text
    assert "has the tensor model.extra.weight" in text
    assert len(caught.value.problems) == 3


def test_a_rate_of_zero_changes_no_weight(make_worker: Make, qwen3: Path) -> None:
    worker = make_worker(qwen3, learning_rate=0.0)
    before, batch = given.weights(worker), given.make_batch()
    for _ in range(5):
        worker.update(batch, given.plan_of(batch, cap=200))
    assert_equal(given.weights(worker), before)


def test_adv_11_a_step_without_trainable_tokens_is_skipped(make_worker: Make, qwen3: Path) -> None:
    worker = make_worker(qwen3)
    before, batch = given.weights(worker), given.make_batch()
    nothing = replace(batch, loss_mask=Ragged(np.zeros_like(batch.loss_mask.values), batch.loss_mask.offsets))
    metrics = worker.update(nothing, given.plan_of(nothing, cap=200))
    assert metrics["train/skipped"].value == 1
    assert worker._step.num_done == 0
    assert_equal(given.weights(worker), before)


def test_log_06_a_gradient_that_is_not_finite_skips_the_step(make_worker: Make, qwen3: Path) -> None:
    worker, batch = make_worker(qwen3), given.make_batch()
    plan = given.plan_of(batch, cap=200)
    values = batch.advantages.values.copy()
    values[np.flatnonzero(batch.loss_mask.values)[0]] = np.nan
    broken = replace(batch, advantages=Ragged(values, batch.advantages.offsets))
    worker.update(batch, plan)
    before = given.weights(worker)
    metrics = worker.update(broken, plan)
    assert metrics["train/skipped"].value == 1 and np.isnan(metrics["train/grad_norm"].value)
    assert_equal(given.weights(worker), before)
    assert worker.update(batch, plan)["train/skipped"].value == 0
    assert worker._step.num_done == 2


def test_lgp_05_masked_values_change_nothing(make_worker: Make, qwen3: Path) -> None:
    batch = given.make_batch()
    masked = ~batch.loss_mask.values
    batch = replace(batch, old_logprobs=batch.rollout_logprobs)
    values = batch.rollout_logprobs.values.copy()
    values[masked] = np.where(np.arange(masked.sum()) % 2, np.nan, -np.inf)
    broken = replace(batch, old_logprobs=Ragged(values, batch.loss_mask.offsets))
    found: list[dict[str, torch.Tensor]] = []
    for one in (batch, broken):
        worker = make_worker(qwen3)
        assert worker.update(one, given.plan_of(one, cap=200))["train/skipped"].value == 0
        found.append(given.weights(worker))
    assert_equal(*found)


def test_bfloat16_trains_on_fp32_masters(make_worker: Make, qwen3: Path) -> None:
    """A rate far below a bf16 weight's spacing moves the masters all the same, so later steps add up."""
    worker, batch = make_worker(qwen3, dtype="bfloat16", learning_rate=1e-5), given.make_batch()
    before = given.weights(worker)
    for _ in range(3):
        assert np.isfinite(worker.update(batch, given.plan_of(batch, cap=200))["train/loss"].value)
    groups = worker._parts.optimizer.param_groups
    assert all(parameter.dtype == torch.float32 for group in groups for parameter in group["params"])
    assert {tensor.dtype for tensor in before.values()} == {torch.bfloat16}
    norms = worker._parts.chunks[0].decoder.final_layernorm.weight
    masters = [p for group in groups for p in group["params"] if p.shape == norms.shape]
    assert any(not torch.equal(master, master.bfloat16().float()) for master in masters)


def test_the_reference_comes_and_goes_bit_for_bit(make_worker: Make, qwen3: Path) -> None:
    worker, batch = make_worker(qwen3, needs_reference=True), given.make_batch()
    plan = given.plan_of(batch, cap=200)
    start = in_order(batch, *worker.logprobs(batch, plan, model="actor"))
    worker.update(batch, plan)
    trained = given.weights(worker)
    assert np.array_equal(in_order(batch, *worker.logprobs(batch, plan, model="reference")), start)
    assert_equal(given.weights(worker), trained)
    assert not np.array_equal(in_order(batch, *worker.logprobs(batch, plan, model="actor")), start)


def test_adv_12_any_split_of_the_work_gives_the_same_step(make_worker: Make, qwen3: Path) -> None:
    """Metrics of both updates; tolerance 1e-5 relative, fp32 sums in another order."""
    batch = given.make_batch()
    expected = make_worker(qwen3).update(batch, given.plan_of(batch, cap=10_000))
    for cap in (50, 100, 200):
        found = make_worker(qwen3).update(batch, given.plan_of(batch, cap=cap))
        for name in ("train/loss", "train/grad_norm", "train/entropy", "mismatch/abs_logprob_max", "tokens/trained"):
            assert found[name].value == pytest.approx(expected[name].value, rel=1e-5, abs=1e-7), name
