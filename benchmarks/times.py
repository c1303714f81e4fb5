"""Medians of a run's steps as one JSON object: python benchmarks/times.py RUN_DIRECTORY [FIRST_STEP]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

KEYS = ("tokens/generated", "tokens/trained", "memory/trainer_gpu_peak_bytes")
PREFIXES = ("time/", "mismatch/", "canary/")


def medians(directory: Path, *, first_step: int) -> dict[str, Any]:
    """Over steps from `first_step`; the first ones compile."""
    lines = (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [step for line in lines if (step := json.loads(line))["step"] >= first_step]
    names = [key for key in steps[-1] if key in KEYS or key.startswith(PREFIXES)]
    found: dict[str, Any] = {name: round(median(step[name] for step in steps), 5) for name in names}
    return {"run": directory.name, "steps": len(steps), **found}


if __name__ == "__main__":
    print(json.dumps(medians(Path(sys.argv[1]), first_step=int(sys.argv[2]) if len(sys.argv) > 2 else 3)))
