"""Named copies of a model's weights in host memory."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightStash:
    """Swaps copies in and the model's own weights, bit for bit, back."""

    def __init__(self, chunks: Sequence[torch.nn.Module]) -> None:
        self._chunks = chunks
        self._copies: dict[str, list[Tensor]] = {}

    def save(self, name: str) -> None:
        """Keeps the weights that the model has now."""
        self._copies[name] = self._current()

    @contextmanager
    def loaded(self, name: str) -> Generator[None]:
        """The model has the named weights inside."""
        with self.restored():
            self._fill(self._copies[name])
            yield

    @contextmanager
    def restored(self) -> Generator[None]:
        """Afterwards the model has the weights of now again."""
        own = self._current()
        try:
            yield
        finally:
            self._fill(own)

    def _parameters(self) -> Iterable[Tensor]:
        return (parameter for chunk in self._chunks for parameter in chunk.parameters())

    def _current(self) -> list[Tensor]:
        return [parameter.detach().to("cpu", copy=True) for parameter in self._parameters()]

    @torch.no_grad()
    def _fill(self, weights: list[Tensor]) -> None:
        for parameter, weight in zip(self._parameters(), weights, strict=True):
            parameter.copy_(weight)
