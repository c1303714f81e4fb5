"""Whole runs of `rltrain train` with real Ray, vLLM and Megatron on the quick start's model."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rltrain.telemetry.rollout_files import read_rollout
from tests.integration.runs import ROOT, Finished, start, train, wait_for_step, workers_of

SECRET = "SECRET123"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    directory = tmp_path_factory.mktemp("runs") / "first"
    environment = {"WANDB_API_KEY": SECRET, "FOO": "x" * 100_000, "BAD": "a\nb"}
    return train(directory, "run.steps=6", "eval.every=3", environment=environment)


def test_a_run_ends_well_and_every_step_is_logged(finished: Finished):
    assert finished.code == 0, finished.output
    assert [line["step"] for line in finished.metrics] == list(range(7))


def test_trainer_and_engine_agree_after_every_sync(finished: Finished):
    """Megatron and vLLM on the same fp32 weights; the bound is the issue's."""
    assert max(line["canary/abs_logprob_max"] for line in finished.metrics) <= 1e-4
    assert max(line["mismatch/abs_logprob_max"] for line in finished.metrics[1:]) <= 1e-4


def test_a_steps_spans_add_up_to_its_wall_time(finished: Finished):
    for line in finished.metrics:
        spans = [value for key, value in line.items() if key.startswith("time/") and key != "time/step_s"]
        assert sum(spans) == pytest.approx(line["time/step_s"], rel=1e-6)


def test_emitted_metrics_are_the_documented_ones(finished: Finished):
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE)
    patterns = [
        re.compile(re.sub(r"<[^>]+>", r"[\\w.@/-]+", re.escape(key).replace(r"\<", "<").replace(r"\>", ">")))
        for key in documented
    ]
    emitted = {key for line in finished.metrics for key in line}
    assert {key for key in emitted if not any(pattern.fullmatch(key) for pattern in patterns)} == set()


def test_every_steps_samples_are_kept(finished: Finished):
    rows = read_rollout(finished.directory / "rollouts" / "step_6.parquet")
    assert len(rows) == 256
    assert len({row.group_id for row in rows}) == 32
    mean = sum(row.reward or 0.0 for row in rows) / len(rows)
    assert mean == pytest.approx(finished.metrics[-1]["reward/mean"])
    assert {row.version for row in rows} == {6}  # sampled by the weights of the sync before


def test_the_final_export_loads_in_transformers_and_explains_the_next_rollout(finished: Finished):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = finished.directory / "hf" / "step_6"
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert sum(parameter.numel() for parameter in model.parameters()) == 303_872
    ids = tokenizer("7=", return_tensors="pt").input_ids
    greedy = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert greedy.shape[1] > ids.shape[1]


def test_sec_03_the_trackers_key_is_in_no_file_and_no_output(finished: Finished):
    assert SECRET not in finished.output
    for file in finished.directory.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_cli_01_a_second_run_of_the_same_name_touches_nothing(finished: Finished):
    before = {file: file.stat().st_mtime_ns for file in finished.directory.rglob("*")}
    second = train(finished.directory, "run.steps=6")
    assert second.code == 2
    assert str(finished.directory) in second.output
    assert "--overwrite" in second.output
    assert {file: file.stat().st_mtime_ns for file in finished.directory.rglob("*")} == before


def test_cli_06_overrides_reach_everything(finished: Finished):
    resolved = (finished.directory / "config.yaml").read_text(encoding="utf-8")
    assert f"directory: {finished.directory.parent}" in resolved
    assert {path.name for path in finished.directory.iterdir()} >= {
        "metrics.jsonl",
        "rollouts",
        "hf",
        "logs",
        "tensorboard",
    }
    environment = json.loads((finished.directory / "environment.json").read_text(encoding="utf-8"))
    assert "FOO" not in json.dumps(environment)


def test_at_learning_rate_0_weights_stay_bit_equal(tmp_path: Path):
    runs = [
        train(tmp_path / f"steps{steps}", f"run.steps={steps}", "actor.optimizer.learning_rate=0", "eval.every=100")
        for steps in (1, 5)
    ]
    assert [run.code for run in runs] == [0, 0], [run.output for run in runs]
    one, five = (load_file(next((run.directory / "hf").rglob("*.safetensors"))) for run in runs)
    assert one.keys() == five.keys()
    assert all(one[name].equal(five[name]) for name in one)
    canaries = {line["canary/abs_logprob_max"] for line in runs[1].metrics}
    assert len(canaries) == 1


def test_a_deterministic_run_repeats_bit_for_bit(tmp_path: Path):
    options = ("run.steps=3", "run.deterministic=true", "rollout.engines=2", "eval.every=100")
    first, second = (train(tmp_path / name, *options) for name in ("first", "second"))
    assert (first.code, second.code) == (0, 0), first.output + second.output

    def facts(run: Finished) -> list[dict[str, float]]:
        volatile = ("time/", "memory/", "throughput/")
        return [{k: v for k, v in line.items() if not k.startswith(volatile)} for line in run.metrics]

    assert facts(first) == facts(second)
    weights = [load_file(next((run.directory / "hf").rglob("*.safetensors"))) for run in (first, second)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_two_data_parallel_ranks_and_several_updates_a_rollout(tmp_path: Path):
    options = ("actor.parallel.data=2", "algorithm.prompts_per_update=8", "actor.tokens_per_micro_batch=128")
    kl = "algorithm.kl={kind: k3, coefficient: 0.01}"
    run = train(tmp_path / "wide", "run.steps=2", *options, kl)
    assert run.code == 0, run.output
    last = run.metrics[-1]
    assert last["tokens/trained"] == last["tokens/generated"]
    assert 0 < last["kl/reference"] < 0.1
    assert last["time/logprob_s"] > 0
    assert last["time/reference_s"] > 0
    assert last["canary/abs_logprob_max"] <= 1e-4


def test_sec_05_a_single_node_run_listens_on_loopback_only(tmp_path: Path):
    directory = tmp_path / "ports"
    process = start(directory, "run.steps=1000")
    try:
        wait_for_step(directory, 1, process)
        pids = {process.pid, *workers_of(process.pid)}
        listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
        ours = [line for line in listening.splitlines() if any(f"pid={pid}," in line for pid in pids)]
        addresses = {line.split()[3].rpartition(":")[0].removeprefix("[::ffff:").rstrip("]") for line in ours}
        assert addresses == {"127.0.0.1"}, ours
    finally:
        process.terminate()
        process.communicate()
