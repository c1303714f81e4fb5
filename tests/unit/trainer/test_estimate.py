"""Tests of rltrain.trainer.estimate, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

from rltrain.config.load import load_args
from rltrain.config.machine import Machine
from rltrain.trainer.estimate import estimate
from rltrain.types.model_spec import ModelSpec

QUICKSTART = Path(__file__).resolve().parents[3] / "configs" / "quickstart.yaml"


def test_the_quick_start_takes_what_its_sizes_say() -> None:
    overrides = ["algorithm.prompts_per_update=8", "actor.parallel.data=2", "actor.tokens_per_micro_batch=100"]
    args = load_args(QUICKSTART, [*overrides, "actor.model.dtype=bfloat16", "run.steps=3"])
    spec = ModelSpec.read(args.actor.model.path)
    found = estimate(args, spec, Machine("cpu", 0))
    assert (found.samples_per_step, found.tokens_per_step) == (256, 256 * 12)
    assert (found.updates_per_step, found.updates) == (4, 12)
    # 8 prompts x 8 samples on 2 ranks; 8 samples of 12 tokens go into 100
    assert (found.samples_per_rank, found.micro_batches) == (32, 4)
    count = spec.num_parameters
    assert found.rank_memory == {"weights": 2 * count, "gradients (float32)": 4 * count, "optimizer": 12 * count}
    assert found.export_bytes == 2 * count


def test_a_reference_model_takes_its_own_weights() -> None:
    args = load_args(QUICKSTART, ["algorithm.kl={kind: k3, coefficient: 0.1}"])
    spec = ModelSpec.read(args.actor.model.path)
    assert estimate(args, spec, Machine("cpu", 0)).rank_memory["reference"] == 4 * spec.num_parameters
