"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How a finding is shown; only `MEND` makes the doctor fail."""

    FINE = "ok"
    NOTE = "note"
    WARNING = "warning"
    MEND = "mend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    subject: str
    level: Level
    found: str
    """What is there."""
    remark: str = ""
    """What was expected, or what follows."""
    command: str | None = None
    """The command that mends it."""
