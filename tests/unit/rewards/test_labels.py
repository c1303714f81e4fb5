from __future__ import annotations

import pytest

from rltrain.config.reward import Exact, LastNumber, Math, PrefixMatch, RewardConfig, RewardPart
from rltrain.rewards.labels import label_check


@pytest.mark.parametrize(
    ("part", "label", "rule"),
    [
        (Math(), "$$", "holds no answer"),
        (Math(), "", "holds no answer"),
        (Math(), r"\boxed{}", "holds no answer"),
        (Math(), r"so \boxed{7", "holds no answer"),
        (Math(), "{", "has a brace without its partner"),
        (Math(), r"\frac{1", "has a brace without its partner"),
        (Math(), "1}", "has a brace without its partner"),
        (LastNumber(), "seven", "is no number"),
        (LastNumber(), "nan", "is no number"),
        (LastNumber(), "", "is no number"),
        (PrefixMatch(), "", "is empty"),
    ],
)
def test_a_label_that_no_response_can_match(part: RewardPart, label: str, rule: str) -> None:
    found = label_check(RewardConfig(parts={"right": part}))(label)
    assert found is not None
    assert rule in found
    assert "reward part right" in found


@pytest.mark.parametrize(
    ("part", "label"),
    [
        (Math(), r"\{1,2\}"),
        (Math(), r"$\frac{1}{2}$"),
        (Math(), "$5"),
        (Math(), "Paris"),
        (Math(), r"thus \boxed{\{1\}}"),
        (LastNumber(), "1,234.5"),
        (LastNumber(), " -7 "),
        (Exact(), ""),
        (PrefixMatch(), " "),
    ],
)
def test_a_label_that_a_response_can_match(part: RewardPart, label: str) -> None:
    assert label_check(RewardConfig(parts={"right": part}))(label) is None
