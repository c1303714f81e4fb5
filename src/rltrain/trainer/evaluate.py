"""Evaluation in the loop: every set with its own prompts, sampling and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rltrain.config.evaluation import EvalSet
from rltrain.telemetry.eval_metrics import eval_metrics
from rltrain.trainer.protocols import Rollouts
from rltrain.types.sample import Prompt, SampleGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSet:
    """An evaluation set, ready to be drawn."""

    name: str
    config: EvalSet
    prompts: Sequence[Prompt]
    rollouts: Rollouts


@dataclass(frozen=True, slots=True)
class Evaluation:
    metrics: dict[str, float]
    """`eval/<set>/<metric>`."""
    groups: dict[str, list[SampleGroup]]
    """The samples by set."""


class Evaluator:
    """Scores every set under the weights that the engines hold."""

    def __init__(self, sets: Sequence[PreparedSet]) -> None:
        self._sets = sets

    async def run(self, *, step: int) -> Evaluation:
        metrics: dict[str, float] = {}
        groups: dict[str, list[SampleGroup]] = {}
        for prepared in self._sets:
            groups[prepared.name] = await prepared.rollouts.collect(prepared.prompts, step=step)
            config = prepared.config
            found = eval_metrics(groups[prepared.name], pass_at=config.pass_at, threshold=config.pass_threshold)
            metrics |= {f"eval/{prepared.name}/{key}": value for key, value in found.items()}
        return Evaluation(metrics, groups)
