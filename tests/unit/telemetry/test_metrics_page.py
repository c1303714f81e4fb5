"""docs/metrics.md against what telemetry emits; the whole run is compared where it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from rltrain.telemetry.eval_metrics import eval_metrics
from rltrain.telemetry.memory import memory_metrics
from rltrain.telemetry.spans import StepClock
from rltrain.telemetry.step_metrics import rollout_metrics
from rltrain.types.sample import Sample, SampleGroup, Status

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def documented() -> list[re.Pattern[str]]:
    """A pattern for each key in the page's table; `<part>` stands for a name."""
    keys = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(keys) > 30
    return [re.compile(re.sub(r"<\w+>", r"[\\w.-]+", re.escape(key))) for key in keys]


def test_every_key_that_telemetry_emits_is_documented(
    make_sample: Callable[..., Sample], make_group: Callable[..., SampleGroup]
) -> None:
    lost = make_sample(reward=None, status=Status.REWARD_TIMEOUT)
    groups = [make_group(make_sample(parts={"digits": 1.0, "math/steps": 2.0}), make_sample(reward=0.0), lost)]
    emitted = [
        *rollout_metrics(groups, version=1),
        *StepClock().finish(),
        *memory_metrics({"engine-0": os.getpid()}),
        *(f"eval/rep/{key}" for key in eval_metrics(groups, pass_at=(1, 2), threshold=1.0)),
    ]
    patterns = documented()
    assert [key for key in emitted if not any(pattern.fullmatch(key) for pattern in patterns)] == []


def test_no_key_is_documented_twice() -> None:
    patterns = [pattern.pattern for pattern in documented()]
    assert len(patterns) == len(set(patterns))
