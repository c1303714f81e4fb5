"""Gradients and whole updates against a plain loop over transformers and torch, in any split of the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.config.algorithm import AlgorithmConfig, ClipLoss, ReferenceKL
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan

KL = ReferenceKL(kind="k3", coefficient=0.1)
TIGHT = ClipLoss(clip_low=0.05, clip_high=0.05)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3")
    given.save_model(path, "Qwen3", tied=True)
    return path


def token_logprobs(model: Any, batch: RolloutBatch, number: int) -> torch.Tensor:
    """Of one sample's response, from its own forward pass."""
    prompt, response = batch.prompt_ids[number], batch.response_ids[number]
    ids = torch.from_numpy(np.concatenate([prompt, response])).long()
    scores = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
    return scores[len(prompt) - 1 :]


def all_logprobs(model: Any, batch: RolloutBatch) -> Ragged[np.float32]:
    with torch.no_grad():
        rows = [token_logprobs(model, batch, number).float().numpy() for number in range(len(batch))]
    return Ragged[np.float32].of(rows, np.float32)


def plain_loss(model: Any, batch: RolloutBatch, numbers: list[int], config: AlgorithmConfig) -> tuple[Any, Any]:
    """Token mean of the clipped loss and the KL, and the share of tokens where the clip took hold, token by token."""
    losses: list[torch.Tensor] = []
    clipped: list[bool] = []
    for number in numbers:
        for t, logprob in enumerate(token_logprobs(model, batch, number)):
            if not batch.loss_mask[number][t]:
                continue
            advantage = float(batch.advantages[number][t])
            old = logprob.item() if batch.old_logprobs is None else float(batch.old_logprobs[number][t])
            ratio = torch.exp(logprob - old)
            low, high = 1 - config.loss.clip_low, 1 + config.loss.clip_high
            outside = (ratio.item() > high and advantage > 0) or (ratio.item() < low and advantage < 0)
            clipped.append(outside)
            loss = torch.as_tensor(-advantage * (high if advantage > 0 else low)) if outside else -advantage * ratio
            if batch.reference_logprobs is not None:
                difference = logprob - float(batch.reference_logprobs[number][t])
                loss = loss + config.kl.coefficient * (torch.exp(-difference) - 1 + difference)
            losses.append(loss)
    return torch.stack(losses).mean(), np.mean(clipped)


def relative_errors(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, float]:
    """Norm of each tensor's difference over the expected one's norm."""
    assert found.keys() == expected.keys()
    return {
        name: (torch.linalg.vector_norm(found[name] - other) / torch.linalg.vector_norm(other)).item()
        for name, other in expected.items()
    }


@pytest.mark.parametrize(("family", "tied"), [("Llama", False), ("Qwen2", True), ("Qwen3", True)])
def test_adv_12_each_gradient_is_that_of_a_plain_loop_for_any_micro_batch(
    tmp_path: Path, family: str, tied: bool
) -> None:
    """Relative to each parameter's gradient norm; tolerance 1e-5, fp32 sums in another order."""
    model = given.save_model(tmp_path, family, tied=tied)
    batch, config = given.make_batch(), AlgorithmConfig()
    plain_loss(model, batch, list(range(len(batch))), config)[0].backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    with given.worker(tmp_path, learning_rate=0.0, clip_grad=None) as worker:
        for count in (1, 2, 4, len(batch)):
            worker.update(batch, given.plan_by_count(batch, count))
            errors = relative_errors(given.gradients(worker), expected)
            assert max(errors.values()) < 1e-5, (count, errors)


def test_several_updates_of_a_rollout_are_those_of_a_plain_loop(qwen3: Path, tmp_path: Path) -> None:
    """Four updates with old and reference log-probs, against transformers and torch's AdamW and clipping.

    Adam's epsilon is large, so that a gradient's rounding near zero isn't blown up; tolerance 1e-5 of the weights.
    """
    model = given.save_model(tmp_path, "Qwen3", tied=True)
    config = AlgorithmConfig(kl=KL, loss=TIGHT)
    batch = given.make_batch()
    batch = replace(batch, old_logprobs=all_logprobs(model, batch), reference_logprobs=batch.rollout_logprobs)
    plan = given.plan_of(batch, cap=100, per=1)
    assert len(plan.steps) == 4
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    norms = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, eps=1e-3)
    options = {"algorithm": config, "epsilon": 1e-3, "clip_grad": 0.5, "weight_decay": 0.1}
    shares: list[float] = []
    with given.worker(qwen3, **options) as worker:
        for step in plan.steps:
            found = worker.update(batch, StepPlan((step,)))
            loss, share = plain_loss(model, batch, [n for bins in step.micro_batches[0] for n in bins], config)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            assert found["train/loss"].value == pytest.approx(loss.item(), rel=1e-4)
            assert found["train/grad_norm"].value == pytest.approx(norm.item(), rel=1e-4)
            assert found["train/clip_fraction"].value == pytest.approx(share)
            shares.append(share)
        assert shares[0] == 0 and min(shares[1:]) > 0
        expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
        errors = relative_errors(given.weights(worker), expected)
    assert max(errors.values()) < 1e-5, errors


def test_all_updates_of_a_rollout_in_one_call_are_those_one_by_one(qwen3: Path) -> None:
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=100, per=1)
    with given.worker(qwen3) as worker:
        worker.update(batch, plan)
        together = given.weights(worker)
    with given.worker(qwen3) as worker:
        for step in plan.steps:
            worker.update(batch, StepPlan((step,)))
        apart = given.weights(worker)
    assert [name for name in together if not torch.equal(together[name], apart[name])] == []


def test_a_reference_of_its_own_directory_scores_and_pulls(qwen3: Path, tmp_path: Path) -> None:
    """Tolerance: fp32 rounding of two implementations."""
    other = given.save_model(tmp_path, "Qwen3", tied=True, seed=5)
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=200)
    config = AlgorithmConfig(kl=KL)
    with given.worker(qwen3, algorithm=config, needs_reference=True, reference_path=tmp_path) as worker:
        before = given.weights(worker)
        numbers, scores = worker.logprobs(batch, plan, model="reference")
        rows = dict(zip(numbers.tolist(), (scores[place] for place in range(len(scores))), strict=True))
        found = Ragged[np.float32].of([rows[number] for number in range(len(batch))], np.float32)
        np.testing.assert_allclose(found.values, all_logprobs(other, batch).values, atol=1e-5)
        assert [name for name in before if not torch.equal(before[name], given.weights(worker)[name])] == []
        values = np.zeros_like(batch.advantages.values)
        pulled = replace(batch, reference_logprobs=found, advantages=Ragged(values, batch.advantages.offsets))
        distances = [worker.update(pulled, plan)["kl/reference"].value for _ in range(8)]
    assert distances[0] > 0.1 and distances[-1] < 0.7 * distances[0]


def test_recomputed_layers_give_the_same_gradients(qwen3: Path) -> None:
    """Bit for bit: the same operations on the same numbers."""
    batch = given.make_batch()
    recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    found: list[dict[str, torch.Tensor]] = []
    for fields in ({}, recompute):
        with given.worker(qwen3, megatron={"transformer": fields}, learning_rate=0.0, clip_grad=None) as worker:
            assert worker._parts.chunks[0].config.recompute_granularity == fields.get("recompute_granularity")
            worker.update(batch, given.plan_by_count(batch, 4))
            found.append(given.gradients(worker))
    assert [name for name in found[0] if not torch.equal(found[0][name], found[1][name])] == []
