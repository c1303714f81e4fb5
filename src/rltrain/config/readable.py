"""Whether a path leads to a file that can be read, asked without opening what could block (a pipe, a device)."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

MISSING = "there is no such file"
KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a directory"),
    (stat.S_ISFIFO, "is a pipe, and must be a file (it is read more than once)"),
    (stat.S_ISSOCK, "is a socket, and must be a file"),
    (stat.S_ISCHR, "is a device, and must be a file"),
    (stat.S_ISBLK, "is a device, and must be a file"),
)


def unreadable(path: Path) -> str | None:
    """What a message says of a path that can't be read as a file; None where it can."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            with path.open("rb"):
                return None
    except (FileNotFoundError, NotADirectoryError):
        return "is a link to nothing" if path.is_symlink() else MISSING
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return next((words for matches, words in KINDS if matches(mode)), "is no file")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object that a JSON file holds; None where there is no such path. Raises ValueError with the reason."""
    reason = unreadable(path)
    if reason == MISSING:
        return None
    if reason is not None:
        raise ValueError(reason)
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"can't be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("must hold a JSON object")
    return cast("dict[str, Any]", found)
