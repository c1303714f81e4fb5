from __future__ import annotations

import pytest

from rltrain.config.reward import Exact
from rltrain.rewards.functions import FACTORIES, exact, last_number, prefix_match


@pytest.mark.parametrize(("response", "reward"), [("7", 1.0), (" 7\n", 1.0), ("77", 0.0), ("", 0.0)])
def test_exact(response: str, reward: float) -> None:
    assert exact(response, " 7 ") == reward


def test_exact_can_mind_white_space() -> None:
    function = FACTORIES[Exact](Exact(kind="exact", strip=False))
    assert [function("7", "7"), function("7 ", "7")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("response", "reward"),
    [("7777", 1.0), ("7070", 0.5), ("7", 0.25), ("", 0.0), ("77779", 1.0), ("x777", 0.75)],
)
def test_prefix_match_is_the_share_of_right_places(response: str, reward: float) -> None:
    assert prefix_match(response, "7777") == reward


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("3 + 4 = 7", "7", 1.0),
        ("7 and then 8", "7", 0.0),
        ("in all 1,234 apples", "1234", 1.0),
        ("1234.50.", "1,234.5", 1.0),
        ("-5", "-5", 1.0),
        ("it is \u22125", "-5", 1.0),
        ("5-3", "3", 1.0),
        ("(2)-3", "3", 1.0),
        ("so x=-3!", "-3", 1.0),
        ("7.0", "7", 1.0),
        (".5", "0.5", 1.0),
        ("1,2", "2", 1.0),
        ("no number", "7", 0.0),
        ("", "7", 0.0),
    ],
)
def test_last_number(response: str, label: str, reward: float) -> None:
    assert last_number(response, label) == reward


def test_labels_that_cannot_be_used_are_errors_not_zeros() -> None:
    with pytest.raises(ValueError, match="'seven' is no number"):
        last_number("7", "seven")
    with pytest.raises(ValueError, match="empty"):
        prefix_match("7", "")
