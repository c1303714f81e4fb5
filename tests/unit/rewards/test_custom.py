from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltrain.config.reward import Custom
from rltrain.rewards.custom import CustomFunction, checked_score, checked_scores
from rltrain.rewards.outcome import Score

ITEM = {"response": "7", "label": "7", "prompt": "q", "metadata": {"level": 3}}


@pytest.fixture(autouse=True)
def fresh_import() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("mine", None)


def part(**changes: Any) -> Custom:
    return Custom(kind="custom", **{"function": "mine:score", **changes})


@pytest.mark.parametrize(
    ("value", "score"),
    [(True, 1.0), (False, 0.0), (np.float32(0.5), 0.5), (3, 3.0), (np.bool_(True), 1.0), (np.array(0.25), 0.25)],
)
def test_rew_10_numbers_of_any_kind_become_floats(value: object, score: float) -> None:
    """REW-10."""
    checked = checked_score(value, None)
    assert checked.value == score
    assert type(checked.value) is float


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (float("nan"), "not a finite number"),
        (float("inf"), "not a finite number"),
        (None, "NoneType 'None', not a number"),
        ("1", "not a number"),
        ([1.0], "not a number"),
        (np.zeros(2), "not a number"),
        ({"score": 1}, "value_key"),
    ],
)
def test_rew_10_anything_else_is_an_error(value: object, rule: str) -> None:
    """REW-10: a dict without the setting names the setting."""
    with pytest.raises(ValueError, match=rule):
        checked_score(value, None)


def test_rew_10_the_declared_key_of_a_dict() -> None:
    """REW-10: the other keys are metrics."""
    assert checked_score({"score": True, "format": 0.5}, "score") == Score(1.0, {"format": 0.5})
    with pytest.raises(ValueError, match="without value_key 'score': format"):
        checked_score({"format": 0.5}, "score")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        (np.int64(-3), -3.0),
        (10**29, 1e29),
        (-0.0, 0.0),
    ],
)
def test_numbers_and_scalars_are_rewards(value: object, expected: float) -> None:
    assert checked_score(value, None) == Score(expected)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        pytest.param(10**400, "whole number of 1329 bits", id="huge"),
        pytest.param(-(10**400), "whole number of 1329 bits", id="minus huge"),
        pytest.param(10**6000, "whole number of 19932 bits", id="beyond texts"),
        (1e308, r"1e\+308, in size larger than 1e\+30"),
        (float("nan"), "returned nan"),
        (float("-inf"), "returned -inf"),
        (np.float32("inf"), "returned inf"),
        ("1", "returned str '1'"),
        (None, "returned NoneType"),
        (1j, "returned complex"),
        (Decimal("0.5"), "returned Decimal"),
        (np.array([0.5]), "returned ndarray"),
        ([0.5], "returned list"),
    ],
)
def test_what_is_no_finite_number_of_a_sensible_size_is_refused(value: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        checked_score(value, None)
    with pytest.raises(ValueError, match=rule):
        checked_score({"reward": 1, "other": value}, "reward")


def test_rew_10_a_group_needs_a_value_for_each_sample() -> None:
    """REW-10."""
    assert checked_scores(np.arange(3.0), 3, None) == [Score(0.0), Score(1.0), Score(2.0)]
    with pytest.raises(ValueError, match="returned 7 values for 8 samples"):
        checked_scores([1] * 7, 8, None)
    with pytest.raises(ValueError, match="returned float"):
        checked_scores(1.0, 8, None)
    with pytest.raises(ValueError, match="response 1: returned nan"):
        checked_scores([1, float("nan")], 2, None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def score(response, label): return response == label", 1.0),
        ("def score(*, response, prompt, metadata, scale=2): return metadata['level'] * scale", 6.0),
        ("def score(**everything): return len(everything)", 4.0),
        ("class Scorer:\n    def __call__(self, response): return 0.5\nscore = Scorer()", 0.5),
    ],
)
def test_a_function_gets_the_keywords_it_names(functions: Callable[[str], Path], source: str, expected: float) -> None:
    assert CustomFunction(part(), search_path=functions(source)).call(ITEM) == [Score(expected)]


def test_kwargs_are_passed(functions: Callable[[str], Path]) -> None:
    directory = functions("def score(response, scale): return scale * float(response)")
    assert CustomFunction(part(kwargs={"scale": 0.1}), search_path=directory).call(ITEM) == [Score(0.1 * 7.0)]


@pytest.mark.parametrize(
    ("source", "changes", "rule"),
    [
        ("def score(response, answer): ...", {}, "wants an argument 'answer'"),
        ("def score(response, /): ...", {}, "wants an argument 'response'"),
        ("def score(label): ...", {}, "takes no 'response'"),
        ("def score(response): ...", {"per": "group"}, "wants an argument 'response'"),
        ("def score(response): ...", {"kwargs": {"scale": 1}}, "kwargs scale can't be passed"),
        ("def score(response, label): ...", {"kwargs": {"label": 1}}, "kwargs label can't be passed"),
        ("score = 1", {}, "is no function: score"),
        ("", {}, "mine.py has no score"),
        ("import nowhere_to_be_found", {}, "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("def score(:", {}, "SyntaxError"),
    ],
)
def test_what_does_not_fit_is_said_at_load(
    functions: Callable[[str], Path], source: str, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        CustomFunction(part(**changes), search_path=functions(source))


def test_async_functions_are_told_from_others(functions: Callable[[str], Path]) -> None:
    assert CustomFunction(part(), search_path=functions("async def score(response): return 1")).is_async


def test_a_forgotten_await_is_an_error(functions: Callable[[str], Path]) -> None:
    source = "async def judge(): return 1\ndef score(response): return judge()"
    with pytest.raises(ValueError, match="returned a coroutine"):
        CustomFunction(part(), search_path=functions(source)).call(ITEM)
