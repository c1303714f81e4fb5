import pytest
import torch

from rltrain.algorithms.kl import estimate


@pytest.mark.parametrize(
    ("log_ratio", "k1", "k2", "k3"),
    [(0.5, 0.5, 0.125, 0.106531), (-0.5, -0.5, 0.125, 0.148721), (1.0, 1.0, 0.5, 0.367879), (0.0, 0.0, 0.0, 0.0)],
)
def test_adv_18_values(log_ratio: float, k1: float, k2: float, k3: float):
    logprobs, reference = torch.tensor([log_ratio - 2.0]), torch.tensor([-2.0])
    found = [estimate(logprobs, reference, kind=kind).item() for kind in ("k1", "k2", "k3")]
    assert found == pytest.approx([k1, k2, k3], abs=1e-6)


def test_k3_keeps_small_differences():
    logprobs = torch.tensor([1e-4], dtype=torch.float32)
    assert estimate(logprobs, torch.zeros(1), kind="k3").item() == pytest.approx(5e-9, rel=0.05)
