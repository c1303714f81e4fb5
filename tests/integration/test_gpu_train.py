"""Whole runs on one GPU that trainer and engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.runs import train

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

BF16 = "actor.model.dtype=bfloat16"


def test_the_quick_start_learns_on_a_gpu(tmp_path: Path) -> None:
    """In fp32 with TF32 off, trainer and engine agree to 2e-4 in the mean over a step's sampled tokens (8e-5 was seen).

    The canary's ids become ever less likely, down to log-probs of -20, and differ by 4e-4 in the mean.
    """
    done = train(tmp_path / "run", "run.steps=200", "profile={steps: [3], memory: true}")
    assert done.code == 0, done.output
    steps = done.metrics
    assert max(step["canary/abs_logprob_mean"] for step in steps) <= 1e-3
    assert max(step["mismatch/abs_logprob_mean"] for step in steps[1:]) <= 2e-4
    assert steps[-1]["eval/rep/reward_mean"] >= 0.85
    names = {path.name for path in (done.directory / "profile" / "step_3").iterdir()}
    assert names == {f"trainer-0-update.{kind}" for kind in ("trace.json.gz", "operations.txt", "memory.pickle")}


def test_rol_01_at_temperature_0_6_trainer_and_engine_agree_in_bf16(tmp_path: Path) -> None:
    done = train(tmp_path / "run", BF16, "run.steps=3", "rollout.temperature=0.6", "rollout.sleep=always")
    assert done.code == 0, done.output
    assert done.metrics[1]["mismatch/abs_logprob_mean"] < 0.02
    assert all(step["canary/abs_logprob_mean"] <= 0.05 for step in done.metrics)


def test_wsy_04_three_steps_at_a_high_rate_stay_in_step_in_bf16(tmp_path: Path) -> None:
    """Checksums are compared at every sync."""
    done = train(
        tmp_path / "run", BF16, "run.steps=3", "actor.optimizer.learning_rate=1e-3", "weight_sync.verify_every=1"
    )
    assert done.code == 0, done.output
    assert all(step["mismatch/abs_logprob_mean"] <= 0.02 for step in done.metrics[1:])
