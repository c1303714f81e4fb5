"""What a run needs of this machine's memory and disk at the very least: more than there is can't be started."""

from __future__ import annotations

import shutil

from rltrain.config.errors import Problem
from rltrain.config.files import existing_part
from rltrain.config.machine import Machine
from rltrain.config.namespace import Args
from rltrain.config.reward import Custom, Math
from rltrain.trainer.estimate import WIDTHS, estimate, saved_bytes
from rltrain.types.model_spec import ModelSpec

GIB = 2**30
WORKER_BYTES = 128 * 2**20
"""Of a trainer's or an engine's process before it has a model; they take more."""
REWARD_BYTES = 24 * 2**20
"""Of a reward's process, without what its function loads."""


def host_memory_problems(args: Args, spec: ModelSpec, machine: Machine) -> list[Problem]:
    """One, with the numbers, at the key that asks for most; none where the machine isn't this one or isn't known."""
    if machine.host_memory_bytes is None or args.cluster.address is not None:
        return []
    needs = _needs(args, spec, machine)
    total = sum(needs.values())
    if total <= machine.host_memory_bytes:
        return []
    numbers = ", ".join(f"{key} {size / GIB:.3g} GiB" for key, size in needs.items() if size)
    rule = f"the run needs at least {total / GIB:.3g} GiB of memory ({numbers}), and this machine has "
    rule += f"{machine.host_memory_bytes / GIB:.3g} GiB"
    return [Problem(key=max(needs, key=lambda key: needs[key]), rule=rule)]


def disk_problems(args: Args, spec: ModelSpec) -> list[Problem]:
    """One where saved steps and final weights won't fit beside what is there: it would show when much is done."""
    checkpoint, free = args.checkpoint, shutil.disk_usage(existing_part(args.run.directory)).free
    final = WIDTHS[args.actor.model.dtype] * spec.num_parameters if checkpoint.export_final else 0
    at_once = 0 if checkpoint.every is None else _steps_at_once(args)
    saved = at_once * saved_bytes(args, spec)
    if final + saved <= free:
        return []
    parts = [f"the final weights take {final / GIB:.3g} GiB"] if final else []
    parts += [f"{at_once} saved steps {saved / GIB:.3g} GiB"] if saved else []
    rule = f"{' and '.join(parts)}, and the disk has {free / GIB:.3g} GiB left"
    hint = "another directory, fewer saved steps (checkpoint.keep_last), or checkpoint.export_final: false"
    return [Problem(key="run.directory", rule=rule, value=str(args.run.directory), hint=hint)]


def _steps_at_once(args: Args) -> int:
    """Those that are kept and one that is being written; with `keep_every` there are more."""
    config = args.checkpoint
    assert config.every is not None
    all_steps = -(-args.run.steps // config.every)
    return all_steps if config.keep_last is None else min(all_steps, config.keep_last + config.keep_best + 1)


def _needs(args: Args, spec: ModelSpec, machine: Machine) -> dict[str, int]:
    """Bytes by the key that asks for them."""
    found = estimate(args, spec, machine)
    rewards = [args.reward, *(one.reward for one in (args.eval.sets.values() if args.eval else ()) if one.reward)]
    processes = sum(r.workers for r in rewards for part in r.parts.values() if isinstance(part, Math | Custom))
    trainers, engines = found.num_trainers * WORKER_BYTES, found.num_engines * WORKER_BYTES
    needs = {
        "cluster.object_store_bytes": args.cluster.object_store_bytes,
        "reward.workers": processes * REWARD_BYTES,
        "actor.parallel.data": trainers,
        "rollout.engines": engines,
    }
    if machine.device == "cuda":
        return needs
    weights = WIDTHS[args.actor.model.dtype] * spec.num_parameters
    return needs | {
        "actor.model.path": found.num_trainers * sum(found.rank_memory.values()) + found.num_engines * weights,
        "rollout.kv_cache_bytes": found.num_engines * (found.cache_bytes or 0),
    }
