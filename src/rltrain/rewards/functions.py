"""Rewards that are cheap and safe enough for the driver: pure functions of a response and its label."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial

from rltrain.config.reward import Exact, LastNumber, PrefixMatch, RewardPart

Inline = Callable[[str, str], float]
"""(response, label) to reward; raises ValueError where the label can't be used."""

NUMBER = re.compile(r"(?:(?<![\w).])[-+\u2212])?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)")
"""A decimal number, thousands parted by commas or not; a sign counts where no operand stands before it."""


def exact(response: str, label: str, *, strip: bool = True) -> float:
    """1 where both are the same text."""
    return float(response.strip() == label.strip() if strip else response == label)


def prefix_match(response: str, label: str) -> float:
    """Share of the label's characters that the response has at the same place; more characters change nothing."""
    if not label:
        raise ValueError("the label is empty")
    return sum(ours == theirs for ours, theirs in zip(response, label, strict=False)) / len(label)


def last_number(response: str, label: str) -> float:
    """1 where the last number of the response has the label's value (1,234 is 1234.0)."""
    wanted = number_of(label)
    found = NUMBER.findall(response)
    return float(bool(found) and number_of(found[-1]) == wanted)


def number_of(label: str) -> Decimal:
    """Raises ValueError where the label is none, or no finite one."""
    text = label.strip()
    try:
        number = Decimal(text.replace(",", "").replace("\u2212", "-"))
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"the label {text!r} is no number")
    return number


def _exact_of(part: Exact) -> Inline:
    return partial(exact, strip=part.strip)


def _prefix_match_of(part: PrefixMatch) -> Inline:
    return prefix_match


def _last_number_of(part: LastNumber) -> Inline:
    return last_number


FACTORIES: Mapping[type[RewardPart], Callable[..., Inline]] = {
    Exact: _exact_of,
    PrefixMatch: _prefix_match_of,
    LastNumber: _last_number_of,
}
"""From the variant of the config to its function; variants that are not here run in worker processes."""
