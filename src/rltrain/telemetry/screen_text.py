"""Text from models and data made safe and short enough for a terminal."""

from __future__ import annotations

import unicodedata

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories that a terminal acts on or shows nothing for: controls, bidirectional marks, surrogates, ..."""
ELLIPSIS = "..."


def screen_text(text: str, *, limit: int = 200) -> str:
    """One line that shows every character: those a terminal would act on are written as escapes (`\\x1b`, `\\n`).

    Longer texts keep their first `limit` characters.
    """
    shown = "".join(_visible(character) for character in text[:limit])
    return shown + ELLIPSIS if len(text) > limit else shown


def _visible(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN_CATEGORIES:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
