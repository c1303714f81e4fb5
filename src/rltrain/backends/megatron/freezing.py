"""Parameters that stay as they are, by regular expressions of their Hugging Face names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rltrain.backends.megatron.convert.held import named_weights
from rltrain.backends.megatron.convert.tensors import model_weights
from rltrain.config.errors import Problem, UserError
from rltrain.config.model import RoleConfig
from rltrain.types.model_spec import ModelSpec


def freeze(chunks: Sequence[Any], spec: ModelSpec, role: RoleConfig) -> None:
    """Takes gradients from this rank's parameters that `actor.train_only` leaves out or `actor.freeze` names.

    Raises UserError, the same on every rank: for a pattern that finds nothing, where nothing is left to train, and for
    tensors that are one of Megatron's parameters and of which only some are named.
    """
    if not role.train_only and not role.freeze:
        return
    frozen = _frozen({name: list(weight.parts) for name, weight in model_weights(spec).items()}, role)
    for chunk in chunks:
        for inside, parameter in chunk.named_parameters():
            names = [name for name, _ in named_weights(inside, parameter, chunk, spec)]
            if len({name in frozen for name in names}) > 1:
                rule = f"the experts of {inside} are one tensor here, and only some of them are named"
                raise UserError.single(_key(role), rule, hint="name all of them or none")
            parameter.requires_grad_(names[0] not in frozen)


def _frozen(parts: dict[str, list[str]], role: RoleConfig) -> set[str]:
    """Megatron's names of those that aren't trained."""
    every = [part for names in parts.values() for part in names]
    problems = [
        Problem(key=f"actor.{key}", rule="finds none of the model's tensors", value=pattern, hint=f"e.g. {every[1]}")
        for key, patterns in (("train_only", role.train_only), ("freeze", role.freeze))
        for pattern in patterns
        if not any(re.search(pattern, part) for part in every)
    ]
    still = {part: not _trains(part, role) for part in every}
    key = _key(role)
    for names in parts.values():
        if len({still[part] for part in names}) > 1:
            rule = f"{', '.join(names)} are one matrix in training, and only some of them are named"
            problems.append(Problem(key=key, rule=rule, hint="name all of them or none"))
    if all(still.values()):
        problems.append(Problem(key=key, rule="leaves nothing to train"))
    if problems:
        raise UserError(problems)
    return {name for name, names in parts.items() if still[names[0]]}


def _trains(part: str, role: RoleConfig) -> bool:
    chosen = not role.train_only or any(re.search(pattern, part) for pattern in role.train_only)
    return chosen and not any(re.search(pattern, part) for pattern in role.freeze)


def _key(role: RoleConfig) -> str:
    return "actor.freeze" if role.freeze else "actor.train_only"
