"""Metrics as a line of JSON a step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path


class JsonlSink:
    """Appends to a file; each line is on disk's way when `write` returns. NaN and infinities become null."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a", encoding="utf-8", buffering=1, newline="\n")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")

    def rewind(self, step: int) -> None:
        """Also drops what a killed process wrote of a line. Other tools may read the file meanwhile."""
        kept = 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                break
            kept += len(line)
        os.truncate(self._path, kept)

    def close(self) -> None:
        self._file.close()
