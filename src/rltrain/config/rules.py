"""What must hold between keys: sizes, lengths, layouts. Pure: facts of the model and the machine are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rltrain.config.errors import Problem
from rltrain.config.layout_rules import LayerFacts, layout_problems
from rltrain.config.machine import Machine
from rltrain.config.model import DecaySchedule
from rltrain.config.passthrough import check_passthrough
from rltrain.config.pointless import pointless
from rltrain.config.reward import Custom, RewardConfig
from rltrain.config.rollout import MOST_SAMPLES_PER_STEP, SamplingConfig
from rltrain.config.tree import Config

REWARD_METRICS = frozenset({"mean", "std"})
"""What `reward/<name>` says of the whole reward, so that no part can have the name."""
TRAINING_STREAM = "train"
"""Name by which training's samples are seeded, apart from those of evaluation sets."""


class ModelFacts(LayerFacts, Protocol):
    """What rules need to know of a model."""

    @property
    def max_positions(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Facts:
    machine: Machine
    visible_gpus: int
    """GPUs that this machine has, whatever the config says."""
    model: ModelFacts | None
    """None where the model can't be read, which is a problem of its own."""


def check(config: Config, facts: Facts) -> list[Problem]:
    """Every rule that is broken, in the user's keys."""
    found = [problem for rule in RULES for problem in rule(config, facts)]
    return [*found, *pointless(config, facts.machine), *check_passthrough(config)]


def group_size(config: Config, facts: Facts) -> Iterator[Problem]:
    count = config.rollout.samples_per_prompt
    if count < 2:
        kind = config.algorithm.advantage.kind
        rule = f"algorithm.advantage.kind {kind} compares a response with others to its prompt, so it needs at least 2"
        yield Problem(key="rollout.samples_per_prompt", rule=rule, value=str(count), hint="e.g. 8")


def updates(config: Config, facts: Facts) -> Iterator[Problem]:
    prompts, samples = config.rollout.prompts_per_step, config.rollout.samples_per_prompt
    update = config.algorithm.prompts_per_update or prompts
    if prompts % update:
        divisors = [number for number in range(1, prompts + 1) if prompts % number == 0]
        below = max((number for number in divisors if number < update), default=1)
        above = min((number for number in divisors if number > update), default=prompts)
        rule = f"must divide rollout.prompts_per_step ({prompts}): {prompts * samples} samples a step make no whole "
        rule += f"number of updates of {update} x {samples} = {update * samples} samples"
        options = dict.fromkeys([below, above])
        hint = f"e.g. {' or '.join(map(str, options))}"
        yield Problem(key="algorithm.prompts_per_update", rule=rule, value=str(update), hint=hint)
    elif update * samples < config.actor.parallel.data:
        rule = f"each of the {config.actor.parallel.data} copies needs a sample in every optimizer step, which has "
        rule += f"{update} prompts x {samples} samples_per_prompt = {update * samples}"
        hint = f"at most {update * samples}, or a larger step"
        value = str(config.actor.parallel.data)
        yield Problem(key="actor.parallel.data", rule=rule, value=value, hint=hint)


def lengths(config: Config, facts: Facts) -> Iterator[Problem]:
    limit = config.rollout.context_length
    if facts.model is not None and limit is not None and limit > facts.model.max_positions:
        rule = f"must be at most the model's max_position_embeddings ({facts.model.max_positions})"
        yield Problem(
            key="rollout.context_length", rule=rule, value=str(limit), hint=f"e.g. {facts.model.max_positions}"
        )
        return
    name = "rollout.context_length"
    if limit is None:
        limit, name = (
            (None if facts.model is None else facts.model.max_positions),
            "the model's max_position_embeddings",
        )
    prompt, response = config.data.max_prompt_tokens, config.rollout.max_tokens
    yield from _length(("data.max_prompt_tokens", prompt), ("rollout.max_tokens", response), limit=limit, name=name)
    yield from _length(
        ("data.max_prompt_tokens", prompt),
        ("rollout.max_tokens", response),
        limit=config.actor.tokens_per_micro_batch,
        name="actor.tokens_per_micro_batch",
        raisable=True,
    )
    for key, one in (config.eval.sets if config.eval else {}).items():
        prompt_key, response_key = f"eval.sets.{key}.max_prompt_tokens", f"eval.sets.{key}.sampling.max_tokens"
        needs = (prompt_key, one.max_prompt_tokens), (response_key, one.sampling.max_tokens)
        yield from _length(*needs, limit=limit, name=name)
    if limit is not None and config.weight_sync.canary_tokens > limit:
        rule = f"must be at most {name} ({limit})"
        yield Problem(key="weight_sync.canary_tokens", rule=rule, value=str(config.weight_sync.canary_tokens))


def _length(
    prompt: tuple[str, int], response: tuple[str, int], *, limit: int | None, name: str, raisable: bool = False
) -> Iterator[Problem]:
    total = prompt[1] + response[1]
    if limit is None or total <= limit:
        return
    rule = f"{prompt[0]} ({prompt[1]}) + {response[0]} ({response[1]}) = {total} tokens, more than {name} ({limit})"
    room = limit - response[1]
    ways = [f"{name}: {total}"] if raisable else []
    ways += [f"{prompt[0]}: {room}"] if room >= 1 else [f"a {response[0]} below {limit}"]
    yield Problem(key=name if raisable else prompt[0], rule=rule, hint=f"e.g. {' or '.join(ways)}")


def training_distribution(config: Config, facts: Facts) -> Iterator[Problem]:
    rollout = config.rollout
    if rollout.temperature == 0:
        rule = "greedy responses to a prompt are all the same and can't be trained on; must be greater than 0"
        hint = "e.g. 1.0; for a greedy evaluation set eval.sets.<name>.sampling.temperature"
        yield Problem(key="rollout.temperature", rule=rule, value="0", hint=hint)
    for name, whole in (("top_p", 1), ("top_k", 0), ("min_p", 0)):
        value = getattr(rollout, name)
        if value != whole:
            rule = "training from truncated sampling is not supported: the trainer's log-probs are of all tokens, the "
            rule += "samples' would be of those left over"
            hint = f"leave it at {whole} and use rollout.temperature; eval.sets.<name>.sampling may truncate"
            yield Problem(key=f"rollout.{name}", rule=rule, value=str(value), hint=hint)


def stop_ids(config: Config, facts: Facts) -> Iterator[Problem]:
    samplings: dict[str, SamplingConfig] = {"rollout": config.rollout}
    for name, one in (config.eval.sets if config.eval else {}).items():
        samplings[f"eval.sets.{name}.sampling"] = one.sampling
    for key, sampling in samplings.items():
        if "" in sampling.stop:
            yield Problem(key=f"{key}.stop", rule="a stop text must not be empty", hint="remove it")
        size = None if facts.model is None else facts.model.vocab_size
        wrong = [token for token in sampling.stop_token_ids if token < 0 or (size is not None and token >= size)]
        if wrong:
            rule = f"must be 0 to {size - 1 if size else 'the vocabulary size'}, the model's vocabulary"
            yield Problem(key=f"{key}.stop_token_ids", rule=rule, value=", ".join(map(str, wrong)))


def evaluation(config: Config, facts: Facts) -> Iterator[Problem]:
    for name, one in (config.eval.sets if config.eval else {}).items():
        key, count = f"eval.sets.{name}", one.samples_per_prompt
        if one.sampling.temperature == 0 and count > 1:
            rule = f"with {key}.sampling.temperature 0 all {count} responses to a prompt are the same"
            hint = "1, or a temperature greater than 0"
            yield Problem(key=f"{key}.samples_per_prompt", rule=rule, value=str(count), hint=hint)
        wrong = [k for k in one.pass_at if not 1 <= k <= count]
        if wrong:
            rule = f"each k must be 1 to {key}.samples_per_prompt ({count})"
            hint = f"e.g. [{count}], or samples_per_prompt: {max(wrong)}" if max(wrong) > count else f"e.g. [{count}]"
            yield Problem(key=f"{key}.pass_at", rule=rule, value=", ".join(map(str, wrong)), hint=hint)
        if len(set(one.pass_at)) < len(one.pass_at):
            yield Problem(key=f"{key}.pass_at", rule="names a k twice", value=", ".join(map(str, one.pass_at)))
        yield from _labels(one.reward or config.reward, one.label_key, key=f"{key}.label_key")


def names(config: Config, facts: Facts) -> Iterator[Problem]:
    """Names of the user's choice that something else has in metrics or seeds."""
    parts = {"reward.parts": config.reward.parts}
    for name, one in (config.eval.sets if config.eval else {}).items():
        if one.reward is not None:
            parts[f"eval.sets.{name}.reward.parts"] = one.reward.parts
        if name == TRAINING_STREAM:
            rule = "is training's own name, by which its samples are seeded"
            yield Problem(key=f"eval.sets.{name}", rule=rule, hint=f"e.g. {name}_set")
    for key, found in parts.items():
        for name in REWARD_METRICS & found.keys():
            rule = f"reward/{name} is a metric of the whole reward already"
            yield Problem(key=f"{key}.{name}", rule=rule, hint=f"e.g. {name}_part")


def samples(config: Config, facts: Facts) -> Iterator[Problem]:
    prompts, each = config.rollout.prompts_per_step, config.rollout.samples_per_prompt
    if prompts * each > MOST_SAMPLES_PER_STEP:
        rule = f"rollout.prompts_per_step ({prompts}) x samples_per_prompt ({each}) = {prompts * each} samples, more "
        rule += f"than a step may have ({MOST_SAMPLES_PER_STEP})"
        yield Problem(key="rollout.prompts_per_step", rule=rule, hint=f"at most {MOST_SAMPLES_PER_STEP // each}")


def rewards(config: Config, facts: Facts) -> Iterator[Problem]:
    yield from _labels(config.reward, config.data.label_key, key="data.label_key")
    if all(part.weight == 0 for part in config.reward.parts.values()):
        rule = "every part has weight 0, so every reward is 0 and nothing is learnt"
        yield Problem(key="reward.parts", rule=rule, hint="give one of them weight: 1.0")


def _labels(reward: RewardConfig, label_key: str | None, *, key: str) -> Iterator[Problem]:
    needing = [name for name, part in reward.parts.items() if not isinstance(part, Custom)]
    if label_key is None and needing:
        rule = f"the reward parts {', '.join(needing)} compare with a label, so null won't do"
        yield Problem(key=key, rule=rule, value="null", hint="name the column")


def schedule(config: Config, facts: Facts) -> Iterator[Problem]:
    optimizer, rollout = config.actor.optimizer, config.rollout
    per_step = max(1, rollout.prompts_per_step // (config.algorithm.prompts_per_update or rollout.prompts_per_step))
    total = config.run.steps * per_step
    if optimizer.warmup_steps > total:
        rule = f"the run has run.steps ({config.run.steps}) x {per_step} = {total} optimizer steps and would never end "
        rule += "its warm-up"
        value = str(optimizer.warmup_steps)
        yield Problem(key="actor.optimizer.warmup_steps", rule=rule, value=value, hint=f"at most {total}")
    plan = optimizer.schedule
    if not isinstance(plan, DecaySchedule):
        return
    if plan.min_lr > optimizer.learning_rate:
        rule = f"must be at most actor.optimizer.learning_rate ({optimizer.learning_rate})"
        yield Problem(key="actor.optimizer.schedule.min_lr", rule=rule, value=str(plan.min_lr))
    end = total if plan.decay_steps is None else plan.decay_steps
    if end <= optimizer.warmup_steps <= total:
        written = plan.decay_steps is not None
        name = "schedule.decay_steps" if written else "warmup_steps"
        rule = f"the decay ends at optimizer step {end}, the warm-up (warmup_steps) at {optimizer.warmup_steps}"
        hint = f"at least {optimizer.warmup_steps + 1}" if written else f"at most {end - 1}"
        yield Problem(key=f"actor.optimizer.{name}", rule=rule, hint=hint)


def devices(config: Config, facts: Facts) -> Iterator[Problem]:
    cluster, rollout = config.cluster, config.rollout
    here = facts.visible_gpus
    if cluster.address is None and cluster.gpus is not None and cluster.gpus > here:
        rule = f"this machine has {here} visible GPUs"
        yield Problem(key="cluster.gpus", rule=rule, value=str(cluster.gpus), hint=f"at most {here}, or leave it out")
    elif cluster.device == "cuda" and facts.machine.num_gpus == 0:
        rule = "no GPU is to be had: " + (
            "cluster.gpus is 0" if cluster.gpus == 0 else "this machine has no visible GPU"
        )
        yield Problem(key="cluster.device", rule=rule, value="cuda", hint="cpu, or auto")
    if facts.machine.device == "cpu":
        if rollout.tensor_parallel > 1:
            rule = "an engine on a CPU is one process, so it must be 1 there"
            yield Problem(key="rollout.tensor_parallel", rule=rule, value=str(rollout.tensor_parallel), hint="1")
        return
    gpus = facts.machine.num_gpus
    needed = rollout.engines * rollout.tensor_parallel
    if needed > gpus and not (gpus == 1 and rollout.tensor_parallel == 1):  # on a single GPU engines may share it
        rule = f"rollout.engines ({rollout.engines}) x rollout.tensor_parallel ({rollout.tensor_parallel}) = {needed} "
        rule += f"GPUs, but the run has {gpus} (cluster.gpus)"
        key = "rollout.tensor_parallel" if rollout.tensor_parallel > 1 else "rollout.engines"
        yield Problem(key=key, rule=rule, hint=f"a product of at most {gpus}")
    ranks = config.actor.parallel.world_size
    if ranks > gpus:
        rule = f"data x tensor x pipeline x context = {ranks} ranks need a GPU each, but the run has {gpus} "
        rule += "(cluster.gpus)"
        yield Problem(key="actor.parallel", rule=rule, hint=f"a product of at most {gpus}")
    elif rollout.tensor_parallel > 1 and needed <= gpus < ranks + needed:
        rule = f"engines of several GPUs share none with the trainer: {needed} and the trainer's {ranks} are more than "
        rule += f"the run's {gpus} (cluster.gpus)"
        value = str(rollout.tensor_parallel)
        yield Problem(key="rollout.tensor_parallel", rule=rule, value=value, hint="1, or fewer trainer ranks")


def layout(config: Config, facts: Facts) -> Iterator[Problem]:
    yield from layout_problems(config.actor.parallel, facts.model)


def profiling(config: Config, facts: Facts) -> Iterator[Problem]:
    profile = config.profile
    if profile is None:
        return
    late = [step for step in profile.steps if step > config.run.steps]
    if late:
        rule = f"the run has {config.run.steps} steps (run.steps)"
        yield Problem(key="profile.steps", rule=rule, value=", ".join(map(str, late)))
    if not profile.trace and not profile.memory:
        yield Problem(key="profile", rule="with trace and memory both false nothing is profiled", hint="leave it out")
    if profile.memory and facts.machine.device == "cpu":
        rule = "is of GPU memory, and this run's models are on a CPU"
        yield Problem(key="profile.memory", rule=rule, value="true", hint="leave it out")


def wall_time(config: Config, facts: Facts) -> Iterator[Problem]:
    limit = config.run.max_wall_time
    if limit is not None and config.checkpoint.every is None:
        rule = "ends a run after a saved step, and checkpoint.every is left out, so none is saved"
        yield Problem(key="run.max_wall_time", rule=rule, value=str(limit), hint="set checkpoint.every")


def best_steps(config: Config, facts: Facts) -> Iterator[Problem]:
    checkpoint = config.checkpoint
    if checkpoint.keep_best and checkpoint.metric is None:
        rule = "is needed to know the best (checkpoint.keep_best)"
        yield Problem(key="checkpoint.metric", rule=rule, hint="e.g. reward/mean")
    kind, _, rest = (checkpoint.metric or "").partition("/")
    sets = list(config.eval.sets) if config.eval else []
    if kind == "eval" and rest.partition("/")[0] not in sets:
        rule = f"names no evaluation set; there are {', '.join(sets) or 'none'}"
        yield Problem(key="checkpoint.metric", rule=rule, value=checkpoint.metric)


RULES: tuple[Callable[[Config, Facts], Iterator[Problem]], ...] = (
    group_size,
    samples,
    names,
    updates,
    lengths,
    training_distribution,
    stop_ids,
    evaluation,
    rewards,
    schedule,
    devices,
    layout,
    profiling,
    best_steps,
    wall_time,
)
