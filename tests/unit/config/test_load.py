"""Tests of rltrain.config.load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rltrain.config.errors import UserError
from rltrain.config.load import load, load_args
from tests.unit.config.workspace import CONFIG

Write = Callable[[str], Path]


def messages(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_args(path, overrides)
    return [str(problem) for problem in caught.value.problems]


def test_cfg_01_a_misspelt_key_is_named_with_place_path_and_nearest_key(write: Write) -> None:
    path = write(CONFIG.replace("learning_rate", "learning_rat"))
    found = messages(path)
    assert any(
        text.startswith(f"{path}:16:5: actor.optimizer.learning_rat = 1e-3:") and "did you mean learning_rate?" in text
        for text in found
    )


def test_cfg_01_a_key_in_the_wrong_section_is_told_where_it_belongs(workspace: Path) -> None:
    (found,) = messages(workspace / "c.yaml", "actor.optimizer.temperature=1.0")
    assert "actor.optimizer.temperature" in found and "rollout.temperature" in found


def test_cfg_01_an_unknown_section_is_refused(workspace: Path) -> None:
    (found,) = messages(workspace / "c.yaml", "rolout.max_tokens=3")
    assert "rolout" in found and "did you mean rollout?" in found


def test_cfg_01_a_key_of_another_kind_names_that_kind(workspace: Path) -> None:
    (found,) = messages(workspace / "c.yaml", "algorithm.kl={kind: none, coefficient: 0.1}")
    assert "algorithm.kl.coefficient" in found and "kind k1 or k2 or k3" in found


def test_an_unknown_kind_lists_the_kinds(workspace: Path) -> None:
    (found,) = messages(workspace / "c.yaml", "algorithm.kl.kind=k9")
    assert "algorithm.kl.kind = k9: must be one of none, k1, k2, k3" in found


def test_cfg_02_an_exponent_without_a_dot_is_a_number(workspace: Path) -> None:
    args = load_args(workspace / "c.yaml", ["actor.optimizer.learning_rate=1e-6"])
    assert args.actor.optimizer.learning_rate == 1e-6
    assert isinstance(args.actor.optimizer.learning_rate, float)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor.optimizer.learning_rate='1e-6'", ["actor.optimizer.learning_rate", "must be a number", "1e-6"]),
        ("actor.optimizer.learning_rate=abc", ["actor.optimizer.learning_rate", "abc", "must be a number"]),
        ("actor.optimizer.learning_rate=.nan", ["actor.optimizer.learning_rate", "finite"]),
        ("run.steps=1e6", ["run.steps", "write 1000000"]),
        ("run.steps=1_000", ["run.steps", "write 1000 "]),
        ("run.steps=true", ["run.steps", "must be a whole number"]),
        ("run.steps=010", ["run.steps", "can't start with 0"]),
        ("run.steps=12:30", ["run.steps", "12:30", "must be a whole number"]),
        ("run.deterministic=yes", ["run.deterministic", "write true"]),
        ("run.deterministic=1", ["run.deterministic", "must be true or false"]),
        ("data.prompt_key=5", ["data.prompt_key", 'quote it: "5"']),
        ("rollout.temperature=true", ["rollout.temperature", "must be a number"]),
    ],
)
def test_cfg_02_values_of_another_type_are_refused(workspace: Path, override: str, words: list[str]) -> None:
    (found,) = messages(workspace / "c.yaml", override)
    assert all(word in found for word in words), found


@pytest.mark.parametrize("text", ["on", "yes", "12:30", "0x", "1e", "2001-01-01"])
def test_cfg_02_texts_stay_texts(workspace: Path, text: str) -> None:
    assert load_args(workspace / "c.yaml", [f"data.prompt_key={text}"]).data.prompt_key == text


def test_all_problems_are_told_at_once(write: Write) -> None:
    found = messages(
        write(CONFIG.replace("steps: 10", "steps: 0").replace("max_tokens: 4\nactor", "max_token: 4\nactor"))
    )
    assert len(found) == 2
    assert "run.steps = 0: must be at least 1" in found[0]
    assert "rollout.max_token" in found[1]


def test_cli_03_paths_count_from_the_file_and_overrides_from_the_working_directory(workspace: Path) -> None:
    args = load_args(Path("../home/c.yaml"), ["actor.model.path=mine"])
    assert args.data.sources[0].path == workspace / "train.jsonl"
    assert args.run.directory == workspace / "runs"
    assert args.actor.model.path == Path.cwd() / "mine"


def test_cli_03_home_and_variables_are_expanded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("PLACE", "deep")
    args = load_args(workspace / "c.yaml", ["run.directory=~/${PLACE}/runs"])
    assert args.run.directory == Path("/somewhere/deep/runs")


def test_a_variable_that_is_not_set_is_an_error(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACE", raising=False)
    (found,) = messages(workspace / "c.yaml", "run.directory=${PLACE}/runs")
    assert "run.directory" in found and "PLACE is not set" in found


def test_cli_06_the_last_override_of_a_key_wins(workspace: Path) -> None:
    args = load_args(
        workspace / "c.yaml", ["run.steps=3", "run.directory=/tmp/x", "run.steps=4", "data.sources.0.weight=2"]
    )
    assert args.run.steps == 4
    assert args.run.directory == Path("/tmp/x")
    assert args.data.sources[0].weight == 2.0


def test_a_base_is_merged_key_by_key_and_its_paths_count_from_its_own_file(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    above = workspace / "sub" / "d.yaml"
    above.write_text("base: ../c.yaml\nrun: {steps: 7}\neval: null\n")
    args = load_args(above)
    assert (args.run.steps, args.eval) == (7, None)
    assert args.data.sources[0].path == workspace / "train.jsonl"


@pytest.mark.parametrize(
    "key",
    ["algorithm", "algorithm.kl", "algorithm.loss", "actor.recompute", "actor.optimizer.schedule", "actor.parallel",
     "actor.megatron", "actor.megatron.ddp", "checkpoint", "cluster", "cluster.env", "data.template", "rollout.vllm",
     "telemetry", "weight_sync"],
)  # fmt: skip
def test_a_null_section_is_as_good_as_none_in_files_and_overrides(workspace: Path, key: str) -> None:
    absent = load_args(workspace / "c.yaml").config()
    assert load_args(workspace / "c.yaml", [f"{key}=null"]).config() == absent
    nested = "null"
    for name in reversed(key.split(".")):
        nested = f"{{{name}: {nested}}}"
    above = workspace / "above.yaml"
    above.write_text(f"{nested[:1]}base: c.yaml, {nested[1:]}\n")
    assert load_args(above).config() == absent


def test_null_switches_off_what_a_base_has_on(workspace: Path) -> None:
    above = workspace / "above.yaml"
    above.write_text("base: c.yaml\nalgorithm: {kl: {kind: k3, coefficient: 0.1}}\nactor: {recompute: {kind: full}}\n")
    args = load_args(above, ["algorithm.kl=null", "actor.recompute=~"])
    assert (args.algorithm.kl.kind, args.actor.recompute.kind) == ("none", "none")


@pytest.mark.parametrize("key", ["run", "data", "reward", "rollout", "actor", "actor.model", "reward.parts"])
def test_a_null_section_that_a_run_needs_is_refused(workspace: Path, key: str) -> None:
    with pytest.raises(UserError, match=rf"{key} = null: must be a mapping"):
        load_args(workspace / "c.yaml", [f"{key}=null"])


def test_bases_that_go_round_are_refused(workspace: Path) -> None:
    (workspace / "a.yaml").write_text("base: b.yaml\n")
    (workspace / "b.yaml").write_text("base: a.yaml\n")
    (found,) = messages(workspace / "a.yaml")
    assert "circle" in found and "a.yaml" in found and "b.yaml" in found


def test_another_kind_drops_the_keys_that_only_the_former_has(write: Write) -> None:
    path = write(CONFIG.replace("{kind: prefix_match}", "{kind: exact, strip: false, weight: 2.0}"))
    part = load_args(path, ["reward.parts.digits.kind=last_number"]).reward.parts["digits"]
    assert (part.kind, part.weight) == ("last_number", 2.0)


def test_sec_03_a_key_of_a_service_is_refused_and_not_shown(workspace: Path) -> None:
    found = messages(
        workspace / "c.yaml", "telemetry.wandb={project: p, key: SECRET123}", "cluster.env={HF_TOKEN: SECRET123}"
    )
    assert len(found) == 2
    assert "telemetry.wandb.key" in found[0] and "WANDB_API_KEY" in found[0]
    assert not any("SECRET123" in text for text in found)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.sources=[{}]", "data.sources[0].path: is required"),
        ("reward.parts={a: {}}", "reward.parts.a.kind: is required"),
        ("data.sources=[]", "data.sources = a list of 0: needs at least 1 entry"),
        ("run=", "run = null: must be a mapping (its keys go below it, indented)"),
        ("run.steps=", "run.steps = null: must be a whole number"),
        ("run.steps=' '", 'run.steps = " ": must be a whole number'),
        ("rollout.top_k=.inf", "rollout.top_k = .inf: must be a whole number"),
        ("actor.optimizer.learning_rate=1e400", "actor.optimizer.learning_rate = 1e400: must be a finite number"),
    ],
)
def test_a_problem_is_told_once_and_with_what_was_written(workspace: Path, override: str, expected: str) -> None:
    (found,) = messages(workspace / "c.yaml", override)
    assert expected in found


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", ".nan", "'.inf'"])
def test_no_hint_says_to_write_what_is_no_number(workspace: Path, text: str) -> None:
    for key in ("actor.optimizer.learning_rate", "run.steps"):
        (found,) = messages(workspace / "c.yaml", f"{key}={text}")
        assert "write" not in found


def test_a_base_that_is_no_file_is_told_for_what_it_is(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    for base, rule in ((str(workspace), "is a directory"), ("pipe", "is a pipe"), ("/dev/zero", "is a device")):
        (workspace / "d.yaml").write_text(f"base: {base}\n")
        (found,) = messages(workspace / "d.yaml")
        assert f"d.yaml:1:7: base = {base}" in found and rule in found


def test_a_config_that_is_no_file_is_told_for_what_it_is(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    for path, rule in ((workspace, "is a directory"), (workspace / "pipe", "is a pipe"), (Path("/dev/zero"), "device")):
        (found,) = messages(path)
        assert str(path) in found and rule in found


def test_a_huge_file_is_no_config(workspace: Path) -> None:
    with (workspace / "huge.yaml").open("wb") as file:
        file.truncate(2**40)
    (found,) = messages(workspace / "huge.yaml")
    assert "more than 16 MiB" in found


def test_args_are_read_only(workspace: Path) -> None:
    args = load_args(workspace / "c.yaml")
    with pytest.raises(AttributeError, match="read-only"):
        args.run = args.run


def test_problems_found_later_get_the_place_of_their_key(workspace: Path) -> None:
    from rltrain.config.errors import Problem

    loaded = load(workspace / "c.yaml")
    (found,) = loaded.located([Problem(key="data.sources[0].path", rule="is gone")])
    assert found.place == f"{workspace / 'c.yaml'}:4:20"
    assert found.value == "train.jsonl"
