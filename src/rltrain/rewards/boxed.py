r"""`\boxed{...}` with balanced braces."""

from __future__ import annotations

import re

OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")


def last_boxed(text: str) -> str | None:
    r"""What the last complete `\boxed{}` holds; None where there is none. Escaped braces (`\{`) are only text."""
    for match in reversed(list(OPENING.finditer(text))):
        end = closing_brace(text, match.end())
        if end is not None:
            return text[match.end() : end]
    return None


def closing_brace(text: str, start: int) -> int | None:
    """Place of the brace that closes the one before `start`; None where none does."""
    depth = 1
    place = start
    while place < len(text):
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
