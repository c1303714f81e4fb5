"""Tests of rltrain.config.rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rltrain.config import rules
from rltrain.config.errors import UserError
from rltrain.config.load import load_args
from rltrain.config.machine import Machine


@dataclass(frozen=True)
class Model:
    max_positions: int = 128
    vocab_size: int = 64
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 32
    experts: None = None


CPU = rules.Facts(machine=Machine("cpu", 0), visible_gpus=0, model=Model())
FOUR_GPUS = rules.Facts(machine=Machine("cuda", 4), visible_gpus=4, model=Model())


def found(workspace: Path, *overrides: str, facts: rules.Facts = CPU) -> list[str]:
    return [str(problem) for problem in rules.check(load_args(workspace / "c.yaml", overrides).config(), facts)]


def test_the_small_config_breaks_no_rule(workspace: Path) -> None:
    assert found(workspace) == []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["reward.parts={mean: {kind: exact}}"], ["reward.parts.mean", "reward/mean", "mean_part"]),
        (["reward.parts={std: {kind: exact}}"], ["reward.parts.std", "reward/std"]),
        (
            ["eval.sets.greedy.reward={parts: {mean: {kind: exact}}}"],
            ["eval.sets.greedy.reward.parts.mean", "reward/mean"],
        ),
        (
            ["rollout.prompts_per_step=1000000", "rollout.samples_per_prompt=16"],
            ["rollout.prompts_per_step", "16000000 samples", "4194304", "at most 262144"],
        ),
        (["algorithm.prompts_per_update=4"], ["algorithm.prompts_per_update = 4", "80", "32", "2 or 5"]),
        (["actor.parallel.data=81"], ["actor.parallel.data = 81", "10 prompts x 8", "80"]),
        (["rollout.samples_per_prompt=1"], ["rollout.samples_per_prompt = 1", "at least 2"]),
        (["rollout.max_tokens=120"], ["120", "16", "136", "128"]),
        (["rollout.context_length=19", "eval=null"], ["16", "4", "20", "rollout.context_length (19)"]),
        (["rollout.context_length=129"], ["rollout.context_length = 129", "128"]),
        (["actor.tokens_per_micro_batch=16"], ["16", "20", "actor.tokens_per_micro_batch: 20"]),
        (["rollout.temperature=0"], ["rollout.temperature", "greater than 0"]),
        (["rollout.top_p=0.9"], ["rollout.top_p", "truncated"]),
        (["rollout.stop_token_ids=[64]"], ["rollout.stop_token_ids = 64", "0 to 63"]),
        (["eval.sets.greedy.samples_per_prompt=4"], ["eval.sets.greedy.samples_per_prompt = 4", "temperature 0"]),
        (["eval.sets.greedy.pass_at=[1, 8]"], ["eval.sets.greedy.pass_at = 8", "(1)"]),
        (["eval.sets.greedy.sampling.top_k=5"], ["eval.sets.greedy.sampling.top_k"]),
        (["data.label_key=null"], ["data.label_key", "digits"]),
        (["reward.parts.digits.weight=0"], ["reward.parts", "weight 0"]),
        (["actor.optimizer.offload=true"], ["actor.optimizer.offload", "GPUs"]),
        (["actor.parallel.sequence=true"], ["actor.parallel.sequence = true"]),
        (["actor.optimizer.warmup_steps=11"], ["actor.optimizer.warmup_steps = 11", "10"]),
        (
            ["actor.optimizer.schedule={kind: linear, decay_steps: 2}", "actor.optimizer.warmup_steps=3"],
            ["decay_steps", "2", "3"],
        ),
        (["actor.optimizer.schedule={kind: cosine, min_lr: 1}"], ["min_lr = 1.0", "0.001"]),
        (["data.sources.0.weight=2"], ["data.sources[0].weight"]),
        (["data.shuffle=false", "data.seed=3"], ["data.seed"]),
        (["checkpoint.keep_last=3"], ["checkpoint.keep_last", "checkpoint.every"]),
        (["checkpoint={every: 5, keep_last: null, keep_every: 10}"], ["checkpoint.keep_every", "keeps all"]),
        (["checkpoint={every: 5, metric: reward/mean}"], ["checkpoint.metric", "keep_best"]),
        (["checkpoint={every: 5, keep_best: 1}"], ["checkpoint.metric", "reward/mean"]),
        (["run.max_wall_time=3600"], ["run.max_wall_time", "set checkpoint.every"]),
        (
            ["checkpoint={every: 5, keep_best: 1, metric: eval/gredy/reward_mean}"],
            ["checkpoint.metric = eval/gredy/reward_mean", "greedy"],
        ),
        (["cluster.address=auto", "cluster.dashboard=true"], ["cluster.dashboard"]),
        (["reward.workers=2"], ["reward.workers"]),
        (["rollout.tensor_parallel=2"], ["rollout.tensor_parallel = 2", "CPU"]),
        (["cluster.device=cuda"], ["cluster.device = cuda"]),
        (["weight_sync.canary_tokens=200"], ["weight_sync.canary_tokens = 200", "128"]),
        (["rollout.vllm.seed=1"], ["rollout.vllm.seed", "set run.seed instead"]),
        (["actor.megatron.transformer.num_layers=1"], ["actor.megatron.transformer.num_layers"]),
    ],
)
def test_broken_rules_name_the_keys_and_the_numbers(workspace: Path, overrides: list[str], words: list[str]) -> None:
    problems = found(workspace, *overrides)
    assert len(problems) == 1, problems
    assert all(word in problems[0] for word in words), problems


def test_cfg_05_engines_must_fit_the_gpus(workspace: Path) -> None:
    (problem,) = found(workspace, "rollout.tensor_parallel=2", "rollout.engines=3", facts=FOUR_GPUS)
    assert "6 GPUs" in problem and "has 4" in problem


def test_engines_may_share_a_single_gpu(workspace: Path) -> None:
    one = rules.Facts(machine=Machine("cuda", 1), visible_gpus=1, model=Model())
    assert found(workspace, "rollout.engines=2", facts=one) == []


def test_cfg_05_ranks_must_fit_the_gpus(workspace: Path) -> None:
    (problem,) = found(workspace, "actor.parallel.tensor=2", "actor.parallel.context=3", facts=FOUR_GPUS)
    assert "6 ranks" in problem and "has 4" in problem


def test_engines_of_several_gpus_share_none_with_the_trainer(workspace: Path) -> None:
    (problem,) = found(workspace, "rollout.tensor_parallel=2", "actor.parallel.data=4", facts=FOUR_GPUS)
    assert "rollout.tensor_parallel = 2" in problem and "4" in problem
    assert found(workspace, "rollout.tensor_parallel=2", "actor.parallel.data=2", facts=FOUR_GPUS) == []


def test_threads_mean_nothing_on_gpus(workspace: Path) -> None:
    (problem,) = found(workspace, "cluster.device=cuda", "rollout.threads=2", facts=FOUR_GPUS)
    assert "rollout.threads" in problem


@pytest.mark.parametrize("override", [".".join("a" * 2000) + "=1", "run.name=" + "x" * 300, "run.steps=" + "9" * 5000])
def test_overlong_overrides_are_refused(workspace: Path, override: str) -> None:
    with pytest.raises(UserError):
        found(workspace, override)
