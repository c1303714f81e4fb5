"""Reward functions of the user's own: found, checked against the documented keywords, and their results checked.

`per: sample` functions get `response`, `per: group` ones `responses` (a list); both may take `label`, `prompt` (text,
or a list of `{role, content}`), `metadata`, and what `kwargs:` gives. They may be `async`.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rltrain.config.reward import Custom
from rltrain.rewards.outcome import Score

SHARED = ("label", "prompt", "metadata")
NUMBERS = "a number (int, float, bool, or a scalar of numpy or torch)"
LARGEST = 1e30
"""Size of a reward: its square and its weighted sums are still finite, and models compute in float32."""
MOST_BITS = 100
"""Of a whole number up to that; Python refuses to turn much longer ones into floats or texts."""


class CustomFunction:
    """A loaded function and the keywords it takes."""

    def __init__(self, part: Custom, *, search_path: Path) -> None:
        """Imports it, with `search_path` in front. Raises ValueError saying what doesn't fit."""
        self._part = part
        self._function = _load(part.function, search_path)
        self._keywords = self._accepted()
        self.is_async = inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(
            getattr(self._function, "__call__", None)  # noqa: B004 (an object with an async __call__)
        )

    def call(self, item: Mapping[str, Any]) -> list[Score]:
        """Scores of one sample (`item["response"]`) or of a group (`item["responses"]`)."""
        return self._scores(self._function(**self._arguments(item)), item)

    async def call_async(self, item: Mapping[str, Any]) -> list[Score]:
        return self._scores(await cast(Awaitable[Any], self._function(**self._arguments(item))), item)

    def _arguments(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: item[name] for name in self._keywords} | self._part.kwargs

    def _scores(self, value: Any, item: Mapping[str, Any]) -> list[Score]:
        if inspect.iscoroutine(value):
            value.close()
            raise ValueError("returned a coroutine; declare the function with async def")
        if self._part.per == "sample":
            return [checked_score(value, self._part.value_key)]
        return checked_scores(value, len(item["responses"]), self._part.value_key)

    def _accepted(self) -> list[str]:
        """The documented keywords that the function takes. Raises ValueError where its signature doesn't fit."""
        name, per, kwargs = self._part.function, self._part.per, self._part.kwargs.keys()
        own = "response" if per == "sample" else "responses"
        offered = (own, *SHARED)
        parameters = inspect.signature(self._function).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        named = {p.name: p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        for parameter in named.values():
            missing = parameter.default is parameter.empty and parameter.name not in {*offered, *kwargs}
            if missing or parameter.kind is parameter.POSITIONAL_ONLY:
                rule = f"{name} wants an argument {parameter.name!r}, which reward functions don't get by name"
                raise ValueError(f"{rule} (per: {per} gives {', '.join(offered)} and kwargs)")
        wrong = {key for key in kwargs if key in offered or not (takes_all or key in named)}
        if wrong:
            raise ValueError(f"kwargs {', '.join(sorted(wrong))} can't be passed to {name}")
        if own not in named and not takes_all:
            raise ValueError(f"{name} takes no {own!r}, so it can't see what it scores (per: {per})")
        return [keyword for keyword in offered if takes_all or keyword in named]


def checked_score(value: Any, value_key: str | None) -> Score:
    """A returned number, or the declared key of a dict with the other numbers beside it. Raises ValueError."""
    if not isinstance(value, Mapping):
        return Score(_finite(value))
    parts = cast(Mapping[str, Any], value)
    if value_key is None:
        raise ValueError(f"returned a dict with {', '.join(map(str, parts))}; say which is the reward with value_key")
    if value_key not in parts:
        raise ValueError(f"returned a dict without value_key {value_key!r}: {', '.join(map(str, parts))}")
    others = {str(key): _finite(part) for key, part in parts.items() if key != value_key}
    return Score(_finite(parts[value_key]), others)


def checked_scores(values: Any, count: int, value_key: str | None) -> list[Score]:
    """One score for each of a group's samples. Raises ValueError."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, str | Mapping) or not isinstance(listed, Sequence):
        raise ValueError(f"returned {type(values).__name__}; a list with a value for each of {count} samples is due")
    items = cast(Sequence[Any], listed)
    if len(items) != count:
        raise ValueError(f"returned {len(items)} values for {count} samples")
    scores: list[Score] = []
    for index, value in enumerate(items):
        try:
            scores.append(checked_score(value, value_key))
        except ValueError as error:
            raise ValueError(f"response {index}: {error}") from error
    return scores


def _finite(value: Any) -> float:
    """A float of a bool, a number or a scalar array."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # numpy's and torch's scalars
        value = value.item()
    if not isinstance(value, int | float):
        raise ValueError(f"returned {type(value).__name__} {str(value)[:80]!r}, not {NUMBERS}")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ValueError(f"returned a whole number of {value.bit_length()} bits, larger than {LARGEST:g}")
    if not math.isfinite(value):
        raise ValueError(f"returned {value}, not a finite number")
    if abs(value) > LARGEST:
        raise ValueError(f"returned {value:g}, in size larger than {LARGEST:g}")
    return float(value)


def _load(target: str, search_path: Path) -> Callable[..., Any]:
    module_name, _, name = target.partition(":")
    if str(search_path) not in sys.path:
        sys.path.insert(0, str(search_path))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise ValueError(f"{module_name} can't be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        rule = "has no" if function is None else "is no function:"
        raise ValueError(f"{module.__file__ or module_name} {rule} {name}")
    return function
