from __future__ import annotations

import pytest

from rltrain.rewards.boxed import balanced, last_boxes


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"so \boxed{12} then \boxed{13}.", ["13"]),
        (r"\boxed{12} then \boxed{13", []),
        (r"\boxed{\boxed{5}}", ["5"]),
        (r"\boxed{4} or \boxed{5}", ["4", "5"]),
        (r"$\boxed{3}$, $\boxed{4}$ and $\boxed{5}$", ["3", "4", "5"]),
        (r"\boxed{3} so \boxed{4}, \boxed{5}", ["4", "5"]),
        (r"\boxed {5}", ["5"]),
        (r"\boxed{}", [""]),
        (r"\boxed{a\\}", [r"a\\"]),
        (r"\boxed{1", []),
        ("boxed{1}", None),
        ("", None),
    ],
)
def test_rew_08_the_last_box(text: str, inner: list[str] | None) -> None:
    """REW-08 (balanced braces) and REW-05 (the last box wins, with those beside it; unless it was never closed)."""
    assert last_boxes(text) == inner


@pytest.mark.parametrize(
    ("text", "whole"), [("", True), ("{}", True), (r"\{", True), ("{", False), ("}", False), ("}{", False)]
)
def test_balanced(text: str, whole: bool) -> None:
    assert balanced(text) is whole
