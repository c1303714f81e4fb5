"""`eval:` data sets that are scored every so many steps with sampling of their own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rltrain.config.data import PromptFormat
from rltrain.config.reward import RewardConfig
from rltrain.config.rollout import MOST_SAMPLES_PER_PROMPT, MOST_SAMPLES_PER_STEP, SamplingConfig
from rltrain.config.section import Section


class EvalSet(PromptFormat):
    sampling: SamplingConfig = SamplingConfig(temperature=0.0)
    """Sampling of this set, apart from the rollout's."""
    samples_per_prompt: int = Field(default=1, ge=1, le=MOST_SAMPLES_PER_PROMPT)
    """Responses to each prompt; 1 where `sampling.temperature` is 0."""
    pass_at: tuple[int, ...] = (1,)
    """The k of pass@k (unbiased, Chen et al. 2021); at most `samples_per_prompt`."""
    pass_threshold: float = Field(default=1.0, ge=-1e9, le=1e9)
    """A response passes with at least this reward."""
    limit: int | None = Field(default=None, ge=1, le=MOST_SAMPLES_PER_STEP)
    """Only the first so many prompts."""
    reward: RewardConfig | None = None
    """Rewards of this set; training's when left out."""


class EvalConfig(Section):
    every: int = Field(default=20, ge=1, le=10**9)
    """Training steps between evaluations; the last step is always evaluated."""
    at_start: bool = True
    """Also before the first step."""
    sets: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], EvalSet] = Field(min_length=1)
    """Evaluation sets by the name that they have in metrics."""
