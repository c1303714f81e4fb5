"""What is drawn and scored: the rewarders of a run and the collectors of training and of evaluation sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rltrain.concurrency import together
from rltrain.config.evaluation import EvalSet
from rltrain.config.namespace import Args
from rltrain.config.reward import RewardConfig
from rltrain.config.rollout import SamplingConfig
from rltrain.config.rules import TRAINING_STREAM
from rltrain.rewards.rewarder import Rewarder
from rltrain.rollout.client import EngineClient
from rltrain.rollout.collector import Draw, RolloutCollector
from rltrain.telemetry.spans import StepClock
from rltrain.trainer.evaluate import Evaluator, PreparedSet
from rltrain.trainer.preparation import Prepared


class Rewarders:
    """Training's rewarder, and one for each evaluation set that has rewards of its own."""

    def __init__(self, args: Args, prepared: Prepared, *, logs: Path) -> None:
        self._logs = logs
        self._search_path = args.config_path.parent
        self._decode = prepared.tokenizer.decode
        self.training = self._make(args.reward)
        sets = args.eval.sets if args.eval is not None else {}
        own = {name: config.reward for name, config in sets.items()}
        self.evaluation: Mapping[str, Rewarder] = {
            name: self.training if reward is None else self._make(reward) for name, reward in own.items()
        }

    def _make(self, config: RewardConfig) -> Rewarder:
        return Rewarder(config, decode=self._decode, search_path=self._search_path, log_directory=self._logs)

    def _all(self) -> set[Rewarder]:
        return {self.training, *self.evaluation.values()}

    async def start(self) -> None:
        await together(*(rewarder.start() for rewarder in self._all()))

    async def close(self) -> None:
        await together(*(rewarder.close() for rewarder in self._all()))


@dataclass(frozen=True, slots=True)
class Draws:
    """Makes the collectors of training and of evaluation sets, which differ only in what they draw."""

    args: Args
    prepared: Prepared
    engines: Sequence[EngineClient]
    rewarders: Rewarders

    def training(self, clock: StepClock) -> RolloutCollector:
        args = self.args
        draw = self._draw(
            TRAINING_STREAM,
            args.rollout,
            samples_per_prompt=args.rollout.samples_per_prompt,
            max_failed_share=args.reward.max_failed_share,
        )
        return RolloutCollector(self.engines, self.rewarders.training, draw, clock=clock)

    def evaluator(self) -> Evaluator | None:
        config = self.args.eval
        if config is None:
            return None
        return Evaluator([self._prepared_set(name, eval_set) for name, eval_set in config.sets.items()])

    def _prepared_set(self, name: str, config: EvalSet) -> PreparedSet:
        reward = config.reward or self.args.reward
        draw = self._draw(
            name,
            config.sampling,
            samples_per_prompt=config.samples_per_prompt,
            max_failed_share=reward.max_failed_share,
        )
        collector = RolloutCollector(self.engines, self.rewarders.evaluation[name], draw)
        return PreparedSet(name=name, config=config, prompts=self.prepared.eval_prompts[name], rollouts=collector)

    def _draw(self, stream: str, sampling: SamplingConfig, *, samples_per_prompt: int, max_failed_share: float) -> Draw:
        return Draw(
            stream=stream,
            sampling=sampling,
            samples_per_prompt=samples_per_prompt,
            eos_ids=self.prepared.spec.eos_ids,
            vocab_limit=self.prepared.tokenizer.vocab_size,
            run_seed=self.args.run.seed,
            deterministic=self.args.run.deterministic,
            timeout_s=self.args.rollout.timeout_s,
            max_failed_share=max_failed_share,
        )
