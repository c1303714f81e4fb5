"""Chunked log-probs against the plain formula in float64."""

from __future__ import annotations

import pytest
import torch

from rltrain.backends.megatron import logprobs
from rltrain.backends.megatron.logprobs import pair_logprobs


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 4 * 11 * 3)  # three rows


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_values_and_gradients_are_those_of_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(7, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    targets, scale = torch.randint(0, 11, (7,)), torch.randn(7, dtype=torch.float64)
    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    own = [hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()]
    expected = (plain[0] @ plain[1].t() / 0.7).log_softmax(-1)
    chosen = expected.gather(-1, targets[:, None])[:, 0]
    found, entropy = pair_logprobs(own[0], own[1], targets, temperature=0.7, group=None)
    (chosen * scale).sum().backward()
    (found * scale.to(dtype)).sum().backward()
    torch.testing.assert_close(found.double(), chosen, atol=tolerance, rtol=tolerance)
    expected_entropy = -(expected.exp() * expected).sum(-1)
    torch.testing.assert_close(entropy.double(), expected_entropy, atol=tolerance, rtol=tolerance)
    for one, other in zip(own, plain, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, atol=tolerance, rtol=tolerance)


def test_lgp_08_targets_outside_of_the_vocabulary_count_nothing() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 5, requires_grad=True), torch.randn(11, 5)
    found, _ = pair_logprobs(hidden, weight, torch.tensor([2, -100, 1]), temperature=1.0, group=None)
    found.sum().backward()
    assert torch.isfinite(found).all() and found[1] == 0
    assert torch.equal(hidden.grad[1], torch.zeros(5)) and hidden.grad[0].any()


def test_no_pairs_give_a_gradient_of_zero() -> None:
    hidden, weight = torch.zeros(0, 5, requires_grad=True), torch.ones(11, 5, requires_grad=True)
    found, _ = pair_logprobs(hidden, weight, torch.zeros(0, dtype=torch.int64), temperature=1.0, group=None)
    found.sum().backward()
    assert torch.equal(weight.grad, torch.zeros(11, 5))


def test_rows_past_the_vocabulary_score_nothing() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 5), torch.randn(11, 5)
    padded = torch.cat([weight, torch.full((2, 5), 100.0)]).requires_grad_()
    targets = torch.tensor([2, 11, 10])
    found, entropy = pair_logprobs(hidden, padded, targets, temperature=1.0, group=None, vocab_size=11)
    expected, expected_entropy = pair_logprobs(hidden, weight, targets, temperature=1.0, group=None)
    assert torch.equal(found, expected) and torch.equal(entropy, expected_entropy) and found[1] == 0
    found.sum().backward()
    assert not padded.grad[11:].any() and padded.grad[:11].any()
