"""Parts that only some model families have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSpec:
    """Multi-head latent attention (DeepSeek-V2): keys and values from a narrow latent, positions in numbers apart."""

    query_rank: int | None
    """Width of the queries' latent; they come straight from the hidden state where None."""
    key_value_rank: int
    plain_dim: int
    """Numbers of a query and a key that know no position."""
    rotary_dim: int
    """Those that are turned; of the keys, all heads share them."""
    value_dim: int

    @property
    def query_dim(self) -> int:
        return self.plain_dim + self.rotary_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """The mixture of experts in a model's sparse layers."""

    count: int
    per_token: int
    intermediate_size: int
    """Of each expert."""
    sparse_layers: tuple[bool, ...]
    """Of each layer, whether it has experts; else its MLP is a dense one."""
    shared_size: int | None = None
    """Width of an MLP that every token goes through too."""
    shared_gate: bool = False
    """Its output is weighted by a sigmoid of the token."""
    score: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = True
    """The chosen experts' scores are divided by their sum."""
    scale: float = 1.0
    """Of the chosen scores, after that."""
    correction_bias: bool = False
    """A bias that is added for the choice alone (Wang et al. 2024)."""
    groups: int = 1
    chosen_groups: int = 1
    """A token's experts come from so many of the groups: those with the largest group scores."""
    group_score: Literal["largest", "two_largest"] = "largest"
    """A group's score: its largest, or the sum of its two largest."""
