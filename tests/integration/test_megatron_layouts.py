"""What else must not depend on the layout: sequence statistics, tied weights, what is sent, skipped steps."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.config.model import FullRecompute, ParallelConfig
from rltrain.types.batch import OptimizerStep, Ragged, RolloutBatch, StepPlan
from rltrain.types.metrics import merged
from rltrain.types.metrics import values as metric_values

WHOLE = {"overlap_grad_reduce": True, "overlap_param_gather": True, "shard_optimizer": True}
LAYOUTS = [
    {"tensor": 2, "sequence": True},
    {"pipeline": 2},
    {"context": 2},
    {"data": 2} | WHOLE,
    {"pipeline": 2, "virtual_pipeline": 2, "tensor": 2, "sequence": True},
    {"pipeline": 2, "context": 2} | WHOLE,
]


@pytest.fixture(scope="module")
def processes() -> Generator[given.RankProcesses]:
    made = given.RankProcesses(4)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tied")
    given.save_model(path, "Qwen3", tied=True, num_hidden_layers=4)
    return path


class Started:
    """A layout's ranks, the plan for them, and the results of the same calls on each."""

    def __init__(self, processes: given.RankProcesses, path: Path, parallel: dict[str, Any], **changes: Any) -> None:
        self.processes, self.layout = processes, ParallelConfig(**parallel)
        self.setup = given.train_setup(path, parallel=parallel, **changes)

    def plan(self, batch: RolloutBatch, *, cap: int = 150) -> StepPlan:
        layout = self.layout
        return given.plan_of(batch, cap=cap, ranks=layout.data, multiple_of=layout.micro_batch_multiple)

    def call(self, calls: Sequence[given.Call]) -> list[list[Any]]:
        return self.processes.run(given.train, self.setup, calls, ranks=self.layout.world_size)


def given_by_one(results: list[list[Any]], place: int) -> Any:
    """What one rank alone had to say at a call."""
    (found,) = [rank[place] for rank in results if rank[place] is not None]
    return found


def sequence_loss(worker: Any, batch: RolloutBatch, plan: StepPlan) -> tuple[float | None, dict[str, torch.Tensor]]:
    """One clipped ratio a sequence, exp of its mean log-ratio (GSPO, Zheng et al. 2025), on advantages whitened over
    the batch: the loss by the rank that reports it, the gradients of all."""
    from rltrain.backends.megatron.micro_batch import MicroBatch
    from rltrain.backends.megatron.passes import forward_backward, scored

    parts, total = worker._parts, torch.zeros(())
    advantages_B = torch.linspace(-1, 1, len(batch))
    advantages_B = (advantages_B - advantages_B.mean()) / advantages_B.std()

    def loss(hidden: torch.Tensor, micro_batch: MicroBatch) -> torch.Tensor:
        logprobs_P, _ = scored(parts, hidden, micro_batch, temperature=1.0)
        rows = micro_batch.rows
        sample_P = torch.from_numpy(rows.sample_P)
        old_P = torch.from_numpy(batch.rollout_logprobs.values[batch.rollout_logprobs.offsets[sample_P] + rows.t_P])
        sums_B = torch.zeros(len(batch)).index_add(0, sample_P, logprobs_P - old_P)
        ratio_B = torch.exp(sums_B / torch.from_numpy(batch.response_ids.lengths).float())
        present_B = torch.zeros(len(batch), dtype=torch.bool).index_fill(0, sample_P, True)
        loss_B = -torch.minimum(ratio_B * advantages_B, ratio_B.clamp(0.8, 1.2) * advantages_B)
        found = torch.where(present_B, loss_B, 0.0).sum()
        total.add_(found.detach())
        return found

    for chunk in parts.wrapped:
        chunk.zero_grad_buffer()
    mine = plan.steps[0].micro_batches[parts.place.data_rank]
    forward_backward(parts, [MicroBatch(batch, numbers, parts) for numbers in mine], loss)
    return (total.item() if parts.place.reports else None), given.gradients(worker)


def batch_of_lengths(lengths: Sequence[int]) -> RolloutBatch:
    """One prompt of 5 tokens, responses of these lengths."""
    drawn = np.random.default_rng(0)
    responses = [drawn.integers(0, given.VOCABULARY, length).astype(np.int32) for length in lengths]
    zeros = Ragged[np.float32].of([np.zeros(length, np.float32) for length in lengths], np.float32)
    return RolloutBatch(
        step=0, version=0, prompt_ids=Ragged[np.int32].of([np.arange(5, dtype=np.int32)] * len(lengths), np.int32),
        response_ids=Ragged[np.int32].of(responses, np.int32),
        loss_mask=Ragged(np.ones(sum(lengths), np.bool_), zeros.offsets), advantages=zeros,
        rollout_logprobs=Ragged((-4 + 0.1 * drawn.normal(size=sum(lengths))).astype(np.float32), zeros.offsets),
        group_B=np.zeros(len(lengths), np.int32),
    )  # fmt: skip


def dealt(count: int, ranks: int) -> StepPlan:
    """A micro-batch of every other sample for each rank, or one of all."""
    return StepPlan((OptimizerStep(tuple((tuple(range(rank, count, ranks)),) for rank in range(ranks)), 1),))


def test_cpx_05_sums_over_a_sequence_do_not_depend_on_how_it_is_split(
    processes: given.RankProcesses, tied: Path
) -> None:
    """Responses of 1, 3 and 64 tokens, so that some ranks have no row of some of them; 1e-5 of each gradient's norm."""
    batch = batch_of_lengths([1, 3, 64])
    expected: dict[str, torch.Tensor] = {}
    total = 0.0
    for parallel in ({}, {"context": 2}, {"context": 4}, {"data": 2}, {"pipeline": 2}, {"tensor": 2, "context": 2}):
        started = Started(processes, tied, parallel)
        results = started.call([(sequence_loss, batch, dealt(3, started.layout.data))])
        losses = [rank[0][0] for rank in results if rank[0][0] is not None]
        assert len(losses) == started.layout.data
        found = results[0][0][1]
        if not parallel:
            (total,), expected = losses, found
            assert abs(total) > 0.1 and all(gradient.any() for gradient in expected.values())
        assert sum(losses) == pytest.approx(total, rel=1e-5), parallel
        for name, gradient in expected.items():
            error = torch.linalg.vector_norm(found[name] - gradient) / torch.linalg.vector_norm(gradient)
            assert error < 1e-5, (parallel, name)


def ends(worker: Any) -> dict[str, torch.Tensor]:
    """The embedding and the output layer, as far as this rank has them."""
    return {
        name: parameter.detach().clone()
        for chunk in worker._parts.chunks
        for name, parameter in chunk.named_parameters()
        if not name.startswith("decoder.")
    }


@pytest.mark.parametrize(
    "parallel",
    [
        {"pipeline": 2},
        {"pipeline": 4},
        {"pipeline": 2, "virtual_pipeline": 2, "data": 2} | WHOLE,
        {"pipeline": 2, "tensor": 2, "sequence": True},
    ],
    ids=str,
)
def test_pip_02_tied_weights_stay_bit_equal_over_stages(
    processes: given.RankProcesses, tied: Path, parallel: dict[str, Any]
) -> None:
    batch, started = given.make_batch(), Started(processes, tied, parallel)
    results = started.call([*[("update", batch, started.plan(batch))] * 5, (ends,)])
    last = started.layout.world_size // started.layout.pipeline
    for first_rank, last_rank in zip(results[:last], results[-last:], strict=True):
        (embedding,) = first_rank[-1].values()
        (output,) = last_rank[-1].values()
        assert list(last_rank[-1]) == ["output_layer.weight"]
        assert torch.equal(embedding, output)


def test_pip_03_the_last_stage_gets_the_weights_of_a_tied_model(processes: given.RankProcesses, tmp_path: Path) -> None:
    """Log-probs before any step against transformers; fp32 rounding of two implementations."""
    model = given.save_model(tmp_path, "Qwen3", tied=True, num_hidden_layers=4)
    ids = np.arange(1, 40, dtype=np.int32)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids).long()[None]).logits[0, :-1]
    expected = logits.log_softmax(-1).gather(-1, torch.from_numpy(ids[1:]).long()[:, None])[:, 0].numpy()
    for parallel in ({"pipeline": 2}, {"pipeline": 4}, LAYOUTS[4]):
        found = given_by_one(Started(processes, tmp_path, parallel).call([("score", ids)]), 0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("parallel", LAYOUTS, ids=str)
def test_pip_04_metrics_are_counted_once(processes: given.RankProcesses, tied: Path, parallel: dict[str, Any]) -> None:
    """CPX-04 too: ranks that share samples don't count their tokens again; every metric is there and finite."""
    batch = given.make_batch()
    found: list[dict[str, float]] = []
    for layout in ({}, parallel):
        started = Started(processes, tied, layout)
        results = started.call([("update", batch, started.plan(batch))])
        metrics = merged(rank[0] for rank in results)
        found.append(metric_values(metrics))
        assert metrics["train/entropy"].count == batch.loss_mask.values.sum()
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        if name != "packing/rows_per_token":
            assert found[1][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def sent(worker: Any) -> list[int | None]:
    """Checksums of all buckets of two syncs."""
    offer = worker.offer_weights()
    count = len(offer.plan.buckets) if offer is not None else NUM_BUCKETS
    return [worker.write_bucket(index, verify=True) for _ in range(2) for index in range(count)]


NUM_BUCKETS = 6


@pytest.mark.parametrize("parallel", LAYOUTS, ids=str)
def test_the_first_rank_sends_the_whole_model(
    processes: given.RankProcesses, tied: Path, parallel: dict[str, Any]
) -> None:
    from rltrain.config.weight_sync import WeightSyncConfig

    changes = {"weight_sync": WeightSyncConfig(bucket_bytes=65536)}
    ((expected,),) = Started(processes, tied, {}, **changes).call([(sent,)])
    assert len(expected) == 2 * NUM_BUCKETS and expected[0] is not None
    results = Started(processes, tied, parallel, **changes).call([(sent,)])
    assert results[0][0] == expected
    assert all(set(others) == {None} for (others,) in results[1:])


@pytest.mark.parametrize("parallel", LAYOUTS, ids=str)
def test_asy_08_all_ranks_skip_together_and_the_reference_stays(
    processes: given.RankProcesses, tied: Path, parallel: dict[str, Any]
) -> None:
    """A NaN in one sample: no rank moves. The reference's log-probs are those of the start, after updates too."""
    batch, started = given.make_batch(), Started(processes, tied, parallel, needs_reference=True)
    plan = started.plan(batch)
    values = batch.advantages.values.copy()
    values[np.flatnonzero(batch.loss_mask.values)[7]] = np.nan
    broken = replace(batch, advantages=Ragged(values, batch.advantages.offsets))
    good, bad = ("update", batch, plan), ("update", broken, plan)
    logprobs = [(logprobs_of, batch, plan, name) for name in ("actor", "reference")]
    results = started.call([good, bad, (ends,), *logprobs, good])
    again = started.call([logprobs[0], good, (ends,), *logprobs, good])
    skipped = merged(rank[1] for rank in results)
    assert skipped["train/skipped"].value == 1
    for rank, other in zip(results, again, strict=True):
        assert rank[2].keys() == other[2].keys()
        assert all(torch.equal(rank[2][name], other[2][name]) for name in rank[2])
    start, actor, reference = (of_all(again, place) for place in (0, 3, 4))
    np.testing.assert_array_equal(reference, start)
    assert np.abs(actor - start).max() > 1e-3
    np.testing.assert_array_equal(of_all(results, 3), actor)
    one, other = (merged(rank[-1] for rank in found)["train/loss"].value for found in (results, again))
    assert one == pytest.approx(other, rel=1e-6)


def all_weights(worker: Any) -> dict[str, torch.Tensor]:
    return given.weights(worker)


FREEZING = [
    {"train_only": [r"layers\.3\."]},
    {"freeze": ["embed_tokens", r"layers\.[01]\."]},
    {"train_only": ["self_attn"], "freeze": [r"layers\.0\.", "norm"]},
]


@pytest.mark.parametrize("frozen", FREEZING, ids=str)
def test_frozen_tensors_keep_their_bits_and_the_others_train_as_on_one_process(
    processes: given.RankProcesses, tied: Path, frozen: dict[str, list[str]]
) -> None:
    """Also where a whole stage is frozen; tolerance of three steps of Adam on fp32 sums in another order."""
    batch = given.make_batch()
    changes = {"role_changes": {"recompute": FullRecompute()} | frozen, "learning_rate": 2e-3}
    found: list[dict[str, torch.Tensor]] = []
    for layout in ({}, {"pipeline": 2}, {"data": 2} | WHOLE, {"pipeline": 2, "tensor": 2, "sequence": True}):
        started = Started(processes, tied, layout, **changes)
        results = started.call([(all_weights,), *[("update", batch, started.plan(batch))] * 3, (all_weights,)])
        before, after = results[0][0], results[0][-1]
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        assert moved == {name for name in before if trains(name, **frozen)}
        found.append(after)
        for name, weight in found[0].items():
            torch.testing.assert_close(after[name], weight, rtol=1e-4, atol=1e-4)


def trains(name: str, train_only: Sequence[str] = (), freeze: Sequence[str] = ()) -> bool:
    named = any(re.search(pattern, name) for pattern in train_only or [""])
    return named and not any(re.search(pattern, name) for pattern in freeze)


def logprobs_of(worker: Any, batch: RolloutBatch, plan: StepPlan, model: str) -> Any:
    return worker.logprobs(batch, plan, model=model)


def of_all(results: list[list[Any]], place: int) -> np.ndarray:
    """Log-probs of all samples in order."""
    rows = {n: found[i] for rank in results for numbers, found in [rank[place]] for i, n in enumerate(numbers.tolist())}
    return np.concatenate([rows[number] for number in range(len(rows))])
