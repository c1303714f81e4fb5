"""Keys that were set and can't matter beside the others: refused, for an ignored key is a wrong belief."""

from __future__ import annotations

from collections.abc import Iterator

from rltrain.config.checkpoint import CheckpointConfig
from rltrain.config.cluster import ClusterConfig
from rltrain.config.data import DataConfig, PromptFormat
from rltrain.config.errors import Problem
from rltrain.config.machine import Machine
from rltrain.config.reward import Custom, Math, RewardConfig
from rltrain.config.tree import Config


def pointless(config: Config, machine: Machine) -> list[Problem]:
    """A problem for each key with a value of its own that nothing reads."""
    problems = [
        *_cluster(config.cluster),
        *_threads(config, machine),
        *_offload(config, machine),
        *_data(config.data),
        *_checkpoint(config.checkpoint),
        *_reward(config.reward, "reward"),
    ]
    problems += _weight(config.data, "data")
    for name, one in (config.eval.sets if config.eval else {}).items():
        key = f"eval.sets.{name}"
        problems += _weight(one, key)
        if one.reward is not None:
            problems += _reward(one.reward, f"{key}.reward")
        for knob, whole in (("top_p", 1), ("top_k", 0), ("min_p", 0)):
            if one.sampling.temperature == 0 and getattr(one.sampling, knob) != whole:
                rule = f"means nothing where {key}.sampling.temperature is 0 (always the likeliest token)"
                problems.append(_unused(f"{key}.sampling.{knob}", rule))
    return problems


def _unused(key: str, rule: str, hint: str = "leave it out") -> Problem:
    return Problem(key=key, rule=rule, hint=hint)


def _cluster(config: ClusterConfig) -> Iterator[Problem]:
    if config.address is None:
        return
    rule = f"is for a cluster that the run starts, and cluster.address ({config.address}) names a running one"
    for name in ("object_store_bytes", "dashboard"):
        if getattr(config, name) != ClusterConfig.model_fields[name].default:
            yield _unused(f"cluster.{name}", rule)


def _threads(config: Config, machine: Machine) -> Iterator[Problem]:
    # A config that leaves the device open may name them for machines without a GPU.
    if machine.device == "cuda" and config.cluster.device == "cuda":
        for key, value in (("actor.threads", config.actor.threads), ("rollout.threads", config.rollout.threads)):
            if value is not None:
                yield _unused(
                    key, "is for models on a CPU, and this run's are on GPUs", "leave it out, or cluster.device: cpu"
                )


def _offload(config: Config, machine: Machine) -> Iterator[Problem]:
    if machine.device == "cpu" and config.actor.optimizer.offload:
        yield _unused("actor.optimizer.offload", "is for GPUs, and this run's models are in host memory anyway")


def _data(config: DataConfig) -> Iterator[Problem]:
    if not config.shuffle and config.seed != DataConfig.model_fields["seed"].default:
        yield _unused("data.seed", "orders the prompts, and data.shuffle is false")


def _checkpoint(config: CheckpointConfig) -> Iterator[Problem]:
    changed = [name for name, field in CheckpointConfig.model_fields.items() if getattr(config, name) != field.default]
    if config.every is None:
        for name in changed:
            if name != "export_final":
                yield _unused(f"checkpoint.{name}", "is of saved steps, and checkpoint.every is left out", "set every")
        return
    if config.keep_last is None:
        for name in ("keep_every", "keep_best"):
            if name in changed:
                yield _unused(f"checkpoint.{name}", "chooses what to keep, and checkpoint.keep_last: null keeps all")
    if config.keep_best == 0:
        for name in ("metric", "mode"):
            if name in changed:
                yield _unused(f"checkpoint.{name}", "is for keep_best, which is 0")


def _weight(config: PromptFormat, key: str) -> Iterator[Problem]:
    is_eval = not isinstance(config, DataConfig)
    for index, source in enumerate(config.sources):
        if source.weight != 1 and (is_eval or len(config.sources) == 1):
            reason = "an evaluation set is read whole" if is_eval else "there is one source, so its share is all"
            yield _unused(f"{key}.sources[{index}].weight", reason)


def _reward(config: RewardConfig, key: str) -> Iterator[Problem]:
    if any(isinstance(part, Math | Custom) for part in config.parts.values()):
        return
    for name in ("workers", "timeout_s"):
        if getattr(config, name) != RewardConfig.model_fields[name].default:
            yield _unused(f"{key}.{name}", "is for parts of kind math or custom, and there are none")
