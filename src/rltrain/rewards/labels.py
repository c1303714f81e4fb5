"""Labels that a reward can never be earned with, found before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from rltrain.config.reward import LastNumber, Math, PrefixMatch, RewardConfig, RewardPart
from rltrain.rewards.answers import label_answer
from rltrain.rewards.boxed import balanced
from rltrain.rewards.functions import number_of


def label_check(config: RewardConfig) -> Callable[[str], str | None]:
    """What is wrong with a label for the parts of a reward, if anything; each different label is looked at once."""

    @lru_cache(maxsize=4096)
    def check(label: str) -> str | None:
        for name, part in config.parts.items():
            if problem := _problem(part, label):
                return f"the label {_shown(label)} {problem} (reward part {name})"
        return None

    return check


def _problem(part: RewardPart, label: str) -> str | None:
    check = CHECKS.get(type(part))
    return None if check is None else check(label)


def _for_math(label: str) -> str | None:
    answer = label_answer(label)
    if not answer:
        return "holds no answer"
    return None if balanced(answer) else "has a brace without its partner, so no answer equals it"


def _for_last_number(label: str) -> str | None:
    try:
        number_of(label)
    except ValueError:
        return "is no number"
    return None


def _for_prefix_match(label: str) -> str | None:
    return None if label else "is empty"


def _shown(label: str) -> str:
    return repr(label if len(label) <= 60 else f"{label[:57]}...")


CHECKS: Mapping[type[RewardPart], Callable[[str], str | None]] = {
    Math: _for_math,
    LastNumber: _for_last_number,
    PrefixMatch: _for_prefix_match,
}
"""Other parts take any label."""
