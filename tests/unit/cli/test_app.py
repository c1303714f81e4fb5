"""Tests of rltrain.cli.app: what every command has in common."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rltrain import __version__
from rltrain.cli.app import app

HEAVY = ("torch", "ray", "vllm", "megatron", "transformers", "pydantic", "numpy", "yaml", "pyarrow")
MAIN = "from rltrain.cli.app import main; main()"

BAD = {
    "misspelt key": (["actor.optimizer.learning_rat=1"], ["actor.optimizer.learning_rat", "learning_rate"]),
    "misspelt section": (["rolout.max_tokens=1"], ["rolout", "did you mean rollout?"]),
    "wrong section": (["actor.temperature=1"], ["actor.temperature", "rollout.temperature"]),
    "key of another kind": (["algorithm.kl={kind: none, place: loss}"], ["algorithm.kl.place", "k1"]),
    "unknown kind": (["algorithm.advantage.kind=gae"], ["algorithm.advantage.kind = gae", "group_mean"]),
    "kind left out": (["algorithm.advantage={scale_by_std: true}"], ["algorithm.advantage.kind", "is required"]),
    "text for a number": (["actor.optimizer.learning_rate=abc"], ["actor.optimizer.learning_rate = abc"]),
    "quoted number": (["rollout.temperature='1'"], ["rollout.temperature", "must be a number"]),
    "float for a whole number": (["run.steps=1.5"], ["run.steps = 1.5", "whole number"]),
    "truth for a number": (["run.steps=true"], ["run.steps = true"]),
    "octal": (["run.steps=010"], ["run.steps", "start with 0"]),
    "yes": (["run.deterministic=yes"], ["run.deterministic = yes", "write true"]),
    "number for a text": (["data.prompt_key=3"], ["data.prompt_key = 3"]),
    "mapping for a list": (["data.sources={path: x}"], ["data.sources", "must be a list"]),
    "empty list": (["data.sources=[]"], ["data.sources", "at least 1"]),
    "null": (["actor.model.path=null"], ["actor.model.path"]),
    "too small": (["run.steps=0"], ["run.steps = 0", "at least 1"]),
    "too large": (["rollout.top_p=1.5"], ["rollout.top_p = 1.5", "at most 1"]),
    "infinite": (["rollout.temperature=.inf"], ["rollout.temperature", "finite"]),
    "bad name": (["run.name=a/b"], ["run.name = a/b"]),
    "unknown choice": (["data.too_long=dorp"], ["data.too_long = dorp", "did you mean drop?"]),
    "secret": (["telemetry.wandb={project: p, api_key: SECRET123}"], ["telemetry.wandb.api_key", "WANDB_API_KEY"]),
    "variable not set": (["run.directory=${NOT_SET_ANYWHERE}"], ["run.directory", "NOT_SET_ANYWHERE"]),
    "no equals sign": (["run.steps"], ["run.steps", "key=value"]),
    "broken flow": (["data.sources=[1"], ["data.sources", "not YAML"]),
    "cfg-03 updates": (["algorithm.prompts_per_update=4"], ["algorithm.prompts_per_update = 4", "80", "32"]),
    "cfg-03 micro-batch": (["actor.tokens_per_micro_batch=8"], ["actor.tokens_per_micro_batch = 8", "20"]),
    "cfg-03 ranks": (["actor.parallel.data=100"], ["actor.parallel.data = 100", "80"]),
    "cfg-05": (["cluster.gpus=1", "rollout.tensor_parallel=2"], ["rollout.tensor_parallel (2)", "the run has 1"]),
    "rol-06": (["eval.sets.greedy.samples_per_prompt=4"], ["eval.sets.greedy.samples_per_prompt = 4"]),
    "group of one": (["rollout.samples_per_prompt=1"], ["rollout.samples_per_prompt = 1", "at least 2"]),
    "greedy training": (["rollout.temperature=0"], ["rollout.temperature = 0"]),
    "no data": (["data.sources.0.path=gone.jsonl"], ["data.sources[0].path", "gone.jsonl"]),
    "data of another kind": (["data.sources.0.path=a.csv"], ["data.sources[0].path", ".parquet"]),
    "no model": (["actor.model.path=gone"], ["actor.model.path", "config.json"]),
    "no weights": (["actor.model.init=pretrained"], ["actor.model.path", "safetensors"]),
    "vllm key": (["rollout.vllm={modle_impl: x}"], ["rollout.vllm.modle_impl"]),
    "megatron key": (
        ["actor.megatron.optimizer.lr=1"],
        ["actor.megatron.optimizer.lr", "actor.optimizer.learning_rate"],
    ),
    "no place for runs": (["run.directory=/proc/x"], ["run.directory = /proc/x", "nothing can be made in /proc"]),
    "empty address": (["cluster.address=''"], ["cluster.address", "auto or host:port"]),
    "absurd steps": (["run.steps=100000000000000000000000000"], ["run.steps", "at most 1000000000"]),
    "more than the memory": (["rollout.kv_cache_bytes=4398046511104"], ["rollout.kv_cache_bytes", "this machine has"]),
    "too few prompts": (["rollout.prompts_per_step=11"], ["c.yaml:4:3", "data.small", "10 prompts < 11 prompts"]),
    "too few epochs": (["data.max_epochs=1"], ["data.max_epochs = 1", "10.00 epochs"]),
    "part named as a metric": (["reward.parts={mean: {kind: exact}}"], ["reward.parts.mean", "reward/mean"]),
    "set named as training": (["eval.sets={train: {sources: [{path: eval.jsonl}]}}"], ["eval.sets.train", "seeded"]),
    "wandb without a key": (["telemetry.wandb={project: p, mode: online}"], ["telemetry.wandb", "WANDB_API_KEY"]),
    "several at once": (["run.steps=0", "rollout.x=1", "data.seed=-1"], ["run.steps", "rollout.x", "data.seed"]),
}


@pytest.mark.parametrize("command", [["train", "--dry-run"], ["validate"]], ids=["train", "validate"])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_with_2_and_names_the_users_keys(workspace: Path, name: str, command: list[str]) -> None:
    """CFG-01, CFG-02, CFG-03, CFG-05, CLI-05, ROL-06, SEC-03."""
    overrides, words = BAD[name]
    before = sorted(workspace.parent.rglob("*"))
    result = CliRunner().invoke(app, [*command, str(workspace / "c.yaml"), *overrides])
    assert result.exit_code == 2, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.output
    assert "SECRET123" not in result.output
    assert sorted(workspace.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["misspelt key", "cfg-03 updates", "cfg-05", "vllm key"])
def test_bad_input_ends_a_process_within_3_s_and_starts_no_engine(workspace: Path, name: str) -> None:
    overrides, words = BAD[name]
    script = f"import sys, atexit\natexit.register(lambda: print(*sys.modules))\n{MAIN}"
    command = [sys.executable, "-c", script, "train", str(workspace / "c.yaml"), *overrides]
    start = time.process_time(), time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - start[1] < 3
    assert result.returncode == 2
    assert all(word in result.stderr for word in words)
    assert "Traceback" not in result.stderr
    assert not {"torch", "ray", "vllm", "megatron", "transformers"} & set(result.stdout.split())


def test_help_and_version_load_nothing_heavy() -> None:
    script = "import sys\nfrom rltrain.cli.app import app\napp(['--help'], standalone_mode=False)\n"
    script += "print('LOADED', *sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = result.stdout.partition("LOADED")[2].split()
    assert "rltrain.cli.app" in loaded
    assert not set(HEAVY) & set(loaded)


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.strip()) == (0, f"rltrain {__version__}")


def test_usage_lines_name_arguments_plainly() -> None:
    for command in (["train"], ["validate"], ["config", "show"]):
        usage = next(
            line for line in CliRunner().invoke(app, [*command, "--help"]).output.splitlines() if "Usage" in line
        )
        assert usage.strip().endswith("{CONFIG} [KEY=VALUE]..."), usage


def test_a_shell_is_told_how_to_complete() -> None:
    environment = {"_RLTRAIN_COMPLETE": "complete_bash", "COMP_WORDS": "rltrain config ", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", f"import sys; sys.argv = ['rltrain']; {MAIN}"]
    environment = os.environ | environment
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert result.stdout.split() == ["show", "schema", "diff"]


def test_a_command_that_does_not_exist_ends_with_2() -> None:
    assert CliRunner().invoke(app, ["trian"]).exit_code == 2


def test_a_dry_run_checks_and_leaves_nothing(workspace: Path) -> None:
    before = sorted(workspace.parent.rglob("*"))
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert sorted(workspace.parent.rglob("*")) == before


def test_a_row_beyond_the_first_few_ends_a_dry_run_with_its_file_and_line(workspace: Path) -> None:
    with (workspace / "train.jsonl").open("a") as file:
        file.write('{"prompt": "1=", "label": "1"}\n' * 50 + '{"prompt": 3}\n')
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), "--dry-run"])
    assert result.exit_code == 2
    assert f"{workspace / 'train.jsonl'}:61" in result.stderr


def test_an_existing_run_is_told_by_a_dry_run_and_left_alone(workspace: Path) -> None:
    run = workspace / "runs" / "first"
    run.mkdir(parents=True)
    command = ["train", str(workspace / "c.yaml"), "--dry-run", "run.name=first"]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "--overwrite" in result.stderr) == (2, True), result.output
    result = CliRunner().invoke(app, [*command, "--overwrite"])
    assert (result.exit_code, "was not made by rltrain" in result.stderr) == (2, True), result.output
    (run / ".rltrain-run").touch()
    assert CliRunner().invoke(app, [*command, "--overwrite"]).exit_code == 0
    assert [path.name for path in run.iterdir()] == [".rltrain-run"]


@pytest.mark.parametrize("override", ["telemetry.wandb={project: p, mode: online}", "rollout.prompts_per_step=11"])
def test_a_refused_start_loses_no_earlier_run(workspace: Path, override: str) -> None:
    run = workspace / "runs" / "first"
    run.mkdir(parents=True)
    for name in (".rltrain-run", "metrics.jsonl"):
        (run / name).touch()
    before = sorted(workspace.rglob("*"))
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), "run.name=first", "--overwrite", override])
    assert result.exit_code == 2, result.output
    assert sorted(path for path in workspace.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.parametrize("command", [["train", "--dry-run"], ["validate"]], ids=["train", "validate"])
def test_a_failing_reward_is_told_once_with_its_place(workspace: Path, command: list[str]) -> None:
    (workspace / "mine.py").write_text("def boom(response): raise RuntimeError('no such luck')\n")
    text = (workspace / "c.yaml").read_text()
    part = "digits: {kind: prefix_match}"
    assert part in text
    (workspace / "c.yaml").write_text(text.replace(part, "mine: {kind: custom, function: mine:boom}"))
    result = CliRunner().invoke(app, [*command, str(workspace / "c.yaml")])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{workspace / 'c.yaml'}:8:11: reward.parts.mine: ") and "no such luck" in line


def test_a_bad_row_ends_a_dry_run_with_its_file_and_line(workspace: Path) -> None:
    (workspace / "train.jsonl").write_text('{"prompt": "1=", "label": "1"}\n{"prompt": 3}\n')
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), "--dry-run"])
    assert result.exit_code == 2
    assert f"{workspace / 'train.jsonl'}:2" in result.stderr


@pytest.mark.parametrize(
    "command", [["train", "--dry-run"], ["validate"], ["train"]], ids=["dry-run", "validate", "train"]
)
def test_labels_that_no_answer_equals_are_told_before_anything_starts(workspace: Path, command: list[str]) -> None:
    text = (workspace / "c.yaml").read_text()
    (workspace / "c.yaml").write_text(text.replace("digits: {kind: prefix_match}", "right: {kind: math}"))
    rows = '{"prompt": "1=", "label": "1"}\n' * 10
    (workspace / "train.jsonl").write_text(rows + '{"prompt": "2=", "label": "$$"}\n{"prompt": "3=", "label": "{"}\n')
    result = CliRunner().invoke(app, [*command, str(workspace / "c.yaml")])
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{workspace / 'train.jsonl'}:11: data: the label '$$' holds no answer")
    assert second.startswith(f"{workspace / 'train.jsonl'}:12: data: the label '{{' has a brace without its partner")
    if command == ["validate"]:
        skipping = CliRunner().invoke(app, [*command, str(workspace / "c.yaml"), "data.on_bad_row=skip"])
        assert skipping.exit_code == 0, skipping.output
        assert "2 bad rows skipped" in re.sub(r"\s+", " ", skipping.output)


def test_validate_says_what_follows(workspace: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(workspace / "c.yaml")])
    assert result.exit_code == 0, result.output
    text = re.sub(r"\s+", " ", result.output)
    assert "10 prompts, 80 samples, at most 1,600 tokens" in text
    assert "1 a step, 10 in all" in text
    assert "reward of '1111' 1 " in text
    assert "reward of '' 0" in text


def test_the_run_gets_the_checked_config(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-06: one resolved config reaches whatever is started."""
    from types import SimpleNamespace

    calls: list[tuple[Any, ...]] = []
    fake = SimpleNamespace(train=lambda args, *, overwrite, resume: calls.append((args.run, overwrite, resume)))
    monkeypatch.setitem(sys.modules, "rltrain.launch", fake)
    command = ["train", str(workspace / "c.yaml"), "run.steps=3", "--overwrite", "run.directory=out"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    ((run, overwrite, resume),) = calls
    assert (run.steps, run.directory, overwrite, resume) == (3, Path.cwd() / "out", True, None)
    assert CliRunner().invoke(app, [*command[:3], "--resume", "auto"]).exit_code == 0
    assert calls[1][1:] == (False, "auto")


RESUMES = {
    "with a flag that removes the run": (["--resume", "auto", "--overwrite"], "give one of them"),
    "nowhere": (["--resume", "runs/nowhere"], "isn't there (auto, a step's number"),
    "without a value": (["--resume"], "requires an argument"),
    "of a run that isn't there": (["--resume", "20"], "there is no run"),
}


@pytest.mark.parametrize(("flags", "text"), RESUMES.values(), ids=list(RESUMES))
def test_cli_01_a_resume_that_cannot_be_is_refused_before_anything_starts(
    workspace: Path, flags: list[str], text: str
) -> None:
    for more in ([], ["--dry-run"]):
        result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), *more, *flags])
        assert result.exit_code == 2
        assert text in " ".join(result.output.split())
    assert not (workspace / "runs").exists()


def test_resuming_automatically_needs_no_earlier_run(workspace: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml"), "--resume", "auto", "--dry-run"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("error", "code"), [("RunError", 1), ("KeyboardInterrupt", 130)])
def test_failed_and_interrupted_runs_have_codes_of_their_own(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, error: str, code: int
) -> None:
    from types import SimpleNamespace

    from rltrain.types.errors import RunError

    def train(args: object, *, overwrite: bool, resume: str | None) -> None:
        raise {"RunError": RunError("it broke"), "KeyboardInterrupt": KeyboardInterrupt()}[error]

    monkeypatch.setitem(sys.modules, "rltrain.launch", SimpleNamespace(train=train))
    result = CliRunner().invoke(app, ["train", str(workspace / "c.yaml")])
    assert result.exit_code == code
    assert "Traceback" not in result.output
