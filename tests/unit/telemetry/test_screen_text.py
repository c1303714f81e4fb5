import pytest

from rltrain.telemetry.screen_text import screen_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("7777", "7777"),
        ("é ü 字 [bold]", "é ü 字 [bold]"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202edcba\u2066", "\\u202edcba\\u2066"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_characters_that_a_terminal_would_act_on_are_escaped(text: str, shown: str) -> None:
    assert screen_text(text) == shown


def test_long_texts_are_cut() -> None:
    assert screen_text("a" * 50, limit=10) == "a" * 10 + "..."
    assert screen_text("a" * 10, limit=10) == "a" * 10
