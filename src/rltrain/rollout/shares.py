"""Splits a step's groups over engines and calls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

TOKENS_PER_CALL = 65536
"""Up to so many sampled tokens an engine gets its groups in one call; beyond, in several, so that rewards of the first
are computed while the engine still generates the others."""
MOST_CALLS_PER_ENGINE = 8


@dataclass(frozen=True, slots=True)
class Call:
    """One call to an engine: groups [start, end)."""

    engine: int
    start: int
    end: int


def split_over_engines(num_groups: int, *, num_engines: int, tokens_per_group: int, one_call: bool) -> list[Call]:
    """Every engine gets as many groups as the others, give or take one; in `one_call` each if asked.

    `tokens_per_group` is the most that a group's samples may have.
    """
    calls: list[Call] = []
    for engine, (start, end) in enumerate(_ranges(0, num_groups, num_engines)):
        tokens = (end - start) * tokens_per_group
        wanted = 1 if one_call else min(-(-tokens // TOKENS_PER_CALL), MOST_CALLS_PER_ENGINE)
        calls += [Call(engine, *part) for part in _ranges(start, end, wanted)]
    return calls


def _ranges(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """At most `count` adjacent ranges of nearly equal length, none of them empty."""
    count = min(count, end - start)
    bounds = [start + (end - start) * place // count for place in range(count + 1)] if count else [start]
    return list(pairwise(bounds))
