"""Two CPU processes over gloo against one: data parallelism, the distributed optimizer, a divided vocabulary."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.types.batch import Ragged
from rltrain.types.metrics import merged


@pytest.fixture(scope="module")
def processes() -> Generator[given.RankProcesses]:
    made = given.RankProcesses(2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3")
    given.save_model(path, "Qwen3", tied=True)
    return path


def different(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> list[str]:
    assert found.keys() == expected.keys()
    return [name for name in expected if not torch.equal(found[name], expected[name])]


def test_adv_12_two_ranks_take_the_step_of_one(processes: given.RankProcesses, qwen3: Path) -> None:
    """Each gradient relative to its norm, and the metrics; tolerance 1e-5, fp32 sums in another order."""
    batch = given.make_batch()
    setup = given.train_setup(qwen3, learning_rate=0.0, clip_grad=None, parallel={"data": 2})
    with given.worker(qwen3, learning_rate=0.0, clip_grad=None) as worker:
        expected = worker.update(batch, given.plan_by_count(batch, len(batch)))
        target = given.gradients(worker)
    calls: list[given.Call] = []
    counts = (1, 2, 4, len(batch))
    for count in counts:
        calls += [("update", batch, given.plan_by_count(batch, count, ranks=2)), (given.gradients,)]
    ranks = processes.run(given.train, setup, calls)
    for place, count in enumerate(counts):
        metrics = merged([results[2 * place] for results in ranks])
        for name in ("train/loss", "train/grad_norm", "train/entropy", "mismatch/abs_logprob_max", "tokens/trained"):
            assert metrics[name].value == pytest.approx(expected[name].value, rel=1e-5, abs=1e-7), (count, name)
        found = ranks[0][2 * place + 1]
        assert different(found, ranks[1][2 * place + 1]) == []
        for name, gradient in target.items():
            error = torch.linalg.vector_norm(found[name] - gradient) / torch.linalg.vector_norm(gradient)
            assert error < 1e-5, (count, name)


def test_the_distributed_optimizer_takes_the_steps_of_the_other(processes: given.RankProcesses, qwen3: Path) -> None:
    """Three updates; tolerance 1e-6, since the norm that clips is summed in another order."""
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=100, ranks=2)
    calls: list[given.Call] = [*[("update", batch, plan)] * 3, (given.weights,), (is_sharded,)]
    one, two = (
        processes.run(given.train, given.train_setup(qwen3, parallel={"data": 2, "shard_optimizer": sharded}), calls)
        for sharded in (False, True)
    )
    assert (one[0][-1], two[0][-1]) == (False, True)
    assert different(two[0][-2], two[1][-2]) == []
    for name, weight in one[0][-2].items():
        torch.testing.assert_close(two[0][-2][name], weight, rtol=1e-6, atol=1e-6)


def is_sharded(worker: Any) -> bool:
    """Whether this rank has moments of a part of the model alone."""
    states = [state for one in worker._parts.optimizer.chained_optimizers for state in one.optimizer.state.values()]
    held = sum(state["exp_avg"].numel() for state in states)
    return held < 0.75 * sum(parameter.numel() for parameter in worker._parts.chunks[0].parameters())


def test_random_weights_are_the_same_for_one_rank_and_two(processes: given.RankProcesses, qwen3: Path) -> None:
    with given.worker(qwen3, init="random") as worker:
        expected = given.weights(worker)
    ranks = processes.run(given.train, given.train_setup(qwen3, init="random"), [(given.weights,)])
    assert [different(results[0], expected) for results in ranks] == [[], []]


def test_asy_08_all_ranks_skip_together(processes: given.RankProcesses, qwen3: Path) -> None:
    """A NaN on rank 1 alone: both skip, and the next step is that of a run that never saw it."""
    batch = given.make_batch()
    plan = given.plan_of(batch, cap=200, ranks=2)
    victim = next(n for bins in plan.steps[0].micro_batches[1] for n in bins if batch.loss_mask[n].any())
    values = batch.advantages.values.copy()
    values[batch.advantages.offsets[victim] + np.flatnonzero(batch.loss_mask[victim])[0]] = np.nan
    broken = replace(batch, advantages=Ragged(values, batch.advantages.offsets))
    good, bad, last = ("update", batch, plan), ("update", broken, plan), (given.weights,)
    setup = given.train_setup(qwen3)
    with_nan = processes.run(given.train, setup, [good, bad, good, last])
    without = processes.run(given.train, setup, [good, good, last])
    assert with_nan[0][1]["train/skipped"].value == 1
    assert [different(results[-1], without[0][-1]) for results in with_nan] == [[], []]


def divided_logprobs(
    rank: int, ranks: int, port: int, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Log-probs, entropies and the gradients of their sum, the weight's from this rank's rows."""
    import torch.distributed as dist

    from rltrain.backends.megatron.logprobs import pair_logprobs

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    hidden, own = hidden.requires_grad_(), weight.chunk(ranks)[rank].clone().requires_grad_()
    found, entropy = pair_logprobs(hidden, own, targets, temperature=0.7, group=dist.group.WORLD)
    found.square().sum().backward()
    dist.destroy_process_group()
    assert hidden.grad is not None and own.grad is not None
    return found.detach(), entropy, hidden.grad, own.grad


def test_lgp_08_a_divided_vocabulary_gives_the_undivided_values_and_gradients(processes: given.RankProcesses) -> None:
    """Float64, tolerance 1e-12; the formula is torch's log_softmax on one process."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 5, dtype=torch.float64), torch.randn(12, 5, dtype=torch.float64)
    targets = torch.tensor([2, -100, 1])
    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    scores = (plain[0] @ plain[1].t() / 0.7).log_softmax(-1)
    chosen = torch.where(targets >= 0, scores.gather(-1, targets.clamp(min=0)[:, None])[:, 0], 0.0)
    chosen.square().sum().backward()
    ranks = processes.run(divided_logprobs, hidden, weight, targets)
    expected = (chosen.detach(), -(scores.exp() * scores).sum(-1).detach(), plain[0].grad)
    for results in ranks:
        torch.testing.assert_close(results[:3], expected, rtol=1e-12, atol=1e-12)
        assert results[0][1] == 0 and not results[2][1].any()
    torch.testing.assert_close(torch.cat([results[3] for results in ranks]), plain[1].grad, rtol=1e-12, atol=1e-12)
