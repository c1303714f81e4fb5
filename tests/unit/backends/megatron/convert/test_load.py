"""Random weights follow from the seed and a tensor's name alone."""

from __future__ import annotations

import torch

from rltrain.backends.megatron.convert.load import drawn_tensor

NAME = "model.embed_tokens.weight"


def drawn(name: str = NAME, *, seed: int = 1, deviation: float = 0.02) -> torch.Tensor:
    return drawn_tensor(name, (96, 6), seed=seed, deviation=deviation)


def test_no_two_tensors_are_alike_and_another_seed_gives_others() -> None:
    assert torch.equal(drawn(), drawn())
    assert not torch.equal(drawn(), drawn("lm_head.weight"))
    assert not torch.equal(drawn(), drawn(seed=2))


def test_the_range_is_the_configs() -> None:
    torch.testing.assert_close(drawn(deviation=0.2), 10 * drawn())
