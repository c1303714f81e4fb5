from __future__ import annotations

import pytest

from rltrain.rewards.boxed import last_boxed


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"so \boxed{12} then \boxed{13}.", "13"),
        (r"\boxed{12} then \boxed{13", "12"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{a\\}", r"a\\"),
        (r"\boxed{1", None),
        ("boxed{1}", None),
        ("", None),
    ],
)
def test_rew_08_the_last_complete_box(text: str, inner: str | None) -> None:
    """REW-08 (balanced braces) and REW-05 (the last complete box wins)."""
    assert last_boxed(text) == inner
