"""Metrics as a line of JSON a step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path


class JsonlSink:
    """Appends to a file; each line is on disk's way when `write` returns. NaN and infinities become null."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1, newline="\n")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")

    def close(self) -> None:
        self._file.close()
