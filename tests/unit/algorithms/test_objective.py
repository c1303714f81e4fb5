"""The policy objective against formulas evaluated by hand and a naive float64 loop."""

import math

import pytest
import torch
from torch import Tensor

from rltrain.algorithms.advantages import group_advantages
from rltrain.algorithms.objective import LossOutput, PairColumns, PolicyObjective
from rltrain.config.algorithm import AlgorithmConfig, ClipLoss, GroupMean, ReferenceKL

NAN, INF = math.nan, math.inf


def columns(
    mask: list[int], advantages: list[float], old: list[float] | None, reference: list[float] | None = None
) -> PairColumns:
    def column(numbers: list[float] | None) -> Tensor | None:
        return None if numbers is None else torch.tensor(numbers)

    return PairColumns(
        mask_P=torch.tensor(mask, dtype=torch.bool),
        advantages_P=torch.tensor(advantages),
        rollout_logprobs_P=torch.tensor(old if old is not None else [0.0] * len(mask)),
        old_logprobs_P=column(old),
        reference_logprobs_P=column(reference),
    )


def run(logprobs: list[float], given: PairColumns, config: AlgorithmConfig | None = None) -> tuple[LossOutput, Tensor]:
    leaf = torch.tensor(logprobs, requires_grad=True)
    output = PolicyObjective(config or AlgorithmConfig())(leaf, torch.zeros(len(logprobs)), given)
    output.total.backward()
    assert leaf.grad is not None
    return output, leaf.grad


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "loss"),
    [
        (1.648721, 1, 0.2, -1.2),
        (0.606531, 1, 0.2, -0.606531),
        (1.648721, -1, 0.2, 1.648721),
        (1.25, 1, 0.28, -1.25),
        (1.25, 1, 0.2, -1.2),
    ],
)
def test_adv_21_clip_bounds(ratio: float, advantage: float, high: float, loss: float):
    config = AlgorithmConfig(loss=ClipLoss(clip_low=0.2, clip_high=high))
    output, _ = run([math.log(ratio)], columns([1], [advantage], [0.0]), config)
    assert output.total.item() == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("bad", [NAN, -200.0, -INF, INF])
def test_lgp_05_values_at_masked_pairs_change_neither_loss_nor_gradient(bad: float):
    output, gradient = run([0.0, 0.0], columns([1, 0], [1.0, 1.0], [0.0, bad], [0.0, bad]))
    _, alone = run([0.0], columns([1], [1.0], [0.0]))
    assert output.total.item() == -1.0
    assert gradient.tolist() == [*alone.tolist(), 0.0]


def test_lgp_05_kl_of_masked_pairs_is_left_out():
    config = AlgorithmConfig(kl=ReferenceKL(kind="k3", coefficient=0.1))
    output, gradient = run([0.0, NAN], columns([1, 0], [1.0, NAN], [0.0, NAN], [0.0, NAN]), config)
    assert output.metric_sums["kl/reference"].tolist() == [0.0, 1.0]
    assert torch.isfinite(gradient).all()


def test_adv_20_kl_counts_only_what_the_policy_wrote():
    config = AlgorithmConfig(kl=ReferenceKL(kind="k1", coefficient=0.1))
    output, _ = run([0.1, -50.0, 0.3], columns([1, 0, 1], [0.0] * 3, [0.1, -50.0, 0.3], [0.0] * 3), config)
    total, count = output.metric_sums["kl/reference"].tolist()
    assert total / count == pytest.approx(0.2, abs=1e-6)


def test_log_08_numerator_and_denominator_are_masked_alike():
    output, _ = run([0.0, 30.0, 30.0], columns([1, 0, 1], [1.0] * 3, [0.0] * 3))
    total, count = output.metric_sums["train/clip_fraction"].tolist()
    assert total / count == 0.5


def test_log_04_mismatch_over_the_loss_mask_and_empty_masks():
    output, _ = run([0.1, 0.9, 0.1], columns([1, 0, 1], [0.0] * 3, [0.0] * 3))
    del output
    given = PairColumns(
        mask_P=torch.tensor([True, False, True]),
        advantages_P=torch.zeros(3),
        rollout_logprobs_P=torch.zeros(3),
    )
    found, _ = run([0.1, 0.9, 0.1], given)
    total, count = found.metric_sums["mismatch/abs_logprob_mean"].tolist()
    assert total / count == pytest.approx(0.1)
    empty, gradient = run([0.1, 0.9], columns([0, 0], [1.0, 1.0], [0.0, 0.0]))
    assert empty.metric_sums["mismatch/abs_logprob_mean"].tolist() == [0.0, 0.0]
    assert gradient.tolist() == [0.0, 0.0]


def test_without_old_logprobs_the_ratio_is_one_and_the_gradient_is_reinforce():
    output, gradient = run([-0.3, -2.0], columns([1, 1], [2.0, -1.0], None))
    assert output.total.item() == pytest.approx(-1.0)
    assert gradient.tolist() == pytest.approx([-2.0, 1.0])


def test_loss_and_gradient_equal_a_naive_float64_loop():
    generator = torch.Generator().manual_seed(0)
    size = 64
    new, old, advantages, reference = (torch.randn(size, generator=generator).mul(0.4) for _ in range(4))
    mask = torch.rand(size, generator=generator) < 0.7
    config = AlgorithmConfig(kl=ReferenceKL(kind="k3", coefficient=0.05), loss=ClipLoss(clip_low=0.1, clip_high=0.3))
    given = PairColumns(
        mask_P=mask, advantages_P=advantages, rollout_logprobs_P=old, old_logprobs_P=old, reference_logprobs_P=reference
    )
    output, gradient = run(new.tolist(), given, config)

    leaf = new.double().requires_grad_()
    naive = torch.zeros((), dtype=torch.float64)
    for i in range(size):
        if mask[i]:
            ratio = torch.exp(leaf[i] - old[i].double())
            bound = min(max(ratio, torch.tensor(0.9).double()), torch.tensor(1.3).double())
            naive = naive + torch.maximum(-advantages[i].double() * ratio, -advantages[i].double() * bound)
            difference = leaf[i] - reference[i].double()
            naive = naive + 0.05 * (torch.exp(-difference) - 1 + difference)
    naive.backward()
    assert output.total.item() == pytest.approx(naive.item(), rel=1e-5)
    assert leaf.grad is not None
    assert torch.allclose(gradient.double(), leaf.grad, rtol=1e-4, atol=1e-6)


def test_log_03_sums_add_up_over_micro_batches():
    whole, _ = run([0.1, 0.2, 0.3], columns([1, 1, 1], [1.0, 2.0, 3.0], [0.0] * 3))
    first, _ = run([0.1], columns([1], [1.0], [0.0]))
    rest, _ = run([0.2, 0.3], columns([1, 1], [2.0, 3.0], [0.0] * 2))
    for name, sums in whole.metric_sums.items():
        assert torch.allclose(sums, first.metric_sums[name] + rest.metric_sums[name])


def test_a_grpo_step_is_trls_in_float64():
    """Advantages and the token mean of the clipped loss, as TRL 1.16 computes them for `loss_type="dapo"`.

    `GRPOTrainer`: rewards minus their group's mean over (sample standard deviation + 1e-4);
    -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A), summed over the mask and divided by its sum. Our epsilon of the
    deviation is 1e-6, so the advantages differ by the factor (deviation + 1e-4) / (deviation + 1e-6).
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0] * 4, [0.3, -0.2, 0.9, 0.9]]).double()
    deviations = rewards.std(1, keepdim=True)
    trl = (rewards - rewards.mean(1, keepdim=True)) / (deviations + 1e-4)
    ours = torch.tensor([group_advantages(row.tolist(), GroupMean()) for row in rewards], dtype=torch.float64)
    torch.testing.assert_close(ours * (deviations + 1e-6) / (deviations + 1e-4), trl, rtol=1e-12, atol=1e-12)

    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 6, (16, 1), generator=generator)
    mask = torch.arange(6) < lengths
    new, old = (-2 + 0.4 * torch.randn(16, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    ratio, advantages = torch.exp(new - old), trl.reshape(16, 1)
    per_token = -torch.min(ratio * advantages, ratio.clamp(1 - 0.2, 1 + 0.28) * advantages)
    expected = (per_token * mask).sum() / mask.sum()
    assert (per_token > -ratio * advantages).any(), "the clip takes hold somewhere"
    given = PairColumns(
        mask_P=mask.flatten(),
        advantages_P=advantages.expand(16, 6).flatten(),
        rollout_logprobs_P=old.flatten(),
        old_logprobs_P=old.flatten(),
    )
    config = AlgorithmConfig(loss=ClipLoss(clip_low=0.2, clip_high=0.28))
    found = PolicyObjective(config)(new.flatten(), torch.zeros(96), given)
    assert (found.total / mask.sum()).item() == pytest.approx(expected.item(), rel=1e-12)
