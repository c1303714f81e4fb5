r"""`\boxed{...}` with balanced braces."""

from __future__ import annotations

import re

OPENING = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|\Z)")
BETWEEN = re.compile(
    r"(?:[\s$,;/]|\\[,;:!()\[\] ]|\\q?quad\b|\\(?:text|mathrm)\s*\{\s*(?:or|and)\s*\}"
    r"|\b(?:or|and|maybe|perhaps|possibly)\b)*"
)
"""What may stand between boxes that lie side by side."""


def last_boxes(text: str) -> list[str] | None:
    r"""What the last `\boxed{}` holds, after those that lie side by side with it, such as in `\boxed{1} or \boxed{2}`.

    None where there is no box; nothing where the last one was never closed. Escaped braces (`\{`) are only text.
    """
    openings = list(OPENING.finditer(text))
    if not openings:
        return None
    start = openings[-1].end()
    end = closing_brace(text, start)
    if end is None:
        return []
    found = [text[start:end]]
    for last, before in zip(reversed(openings), reversed(openings[:-1]), strict=False):
        end = closing_brace(text, before.end(), last.start())
        if end is None or not BETWEEN.fullmatch(text, end + 1, last.start()):
            break
        found.insert(0, text[before.end() : end])
    return found


def closing_brace(text: str, start: int, stop: int | None = None) -> int | None:
    """Place of the brace that closes the one before `start`; None where none before `stop` does."""
    depth = 1
    place = start
    stop = len(text) if stop is None else stop
    while place < stop:
        if text[place] == "\\":
            place += 1  # the next character is escaped
        elif text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
        place += 1
    return None


def balanced(text: str) -> bool:
    """Whether `text` could stand in a box: every brace that isn't escaped has its partner."""
    return closing_brace(text + "}", 0) == len(text)
