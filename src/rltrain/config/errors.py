"""What a user can mend: every problem found at once, each with its place, value, rule and way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_VALUE = 400
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with the input; `str()` gives the line a user reads."""

    key: str
    """Dotted path of the key as the user wrote it, or the name of the argument or file."""
    rule: str
    """What must hold, with the numbers."""
    value: str | None = None
    """The offending value as the user wrote it."""
    place: str | None = None
    """`file:line:column`, or `command line`."""
    hint: str | None = None
    """The way out."""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        value = f" = {_shortened(self.value)}" if self.value is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.key}{value}: {self.rule}{hint}"


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE // 2]}...{value[-LONGEST_VALUE // 2 :]}"


class UserError(ValueError):
    """Bad input (config, data, arguments); the command line shows every problem and exits with 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        assert problems, "a UserError needs at least one problem"
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def single(
        cls,
        key: str,
        rule: str,
        *,
        value: object = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> UserError:
        shown = None if value is None else str(value)
        return cls([Problem(key=key, rule=rule, value=shown, place=place, hint=hint)])

    def __reduce__(self) -> tuple[type[UserError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # crosses process boundaries whole
