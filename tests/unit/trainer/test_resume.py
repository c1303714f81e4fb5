"""Which saved step `--resume` finds, over directories that a run or an accident left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltrain.checkpoint.manifest import facts_of
from rltrain.checkpoint.retention import Retention
from rltrain.checkpoint.state import STATE, RunState
from rltrain.checkpoint.steps import SavedSteps
from rltrain.config.dump import resolved
from rltrain.config.errors import UserError
from rltrain.config.namespace import Args
from rltrain.config.tree import Config
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.trainer.resume import Resumed, choose, find_origin
from rltrain.types.model_spec import ModelSpec
from tests.unit.config.workspace import MODEL

WEIGHTS = "actor/rank_00000.safetensors"


class Place:
    """A directory of runs with one config."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "model").mkdir()
        (root / "model" / "config.json").write_text(json.dumps(MODEL))
        self.spec = ModelSpec.read(root / "model")

    def args(self, name: str | None = "a", *, steps: int = 100, **actor: Any) -> Args:
        model = {"path": self.root / "model", "init": "random"}
        tree: dict[str, Any] = {
            "run": {"name": name, "directory": self.root / "runs", "steps": steps},
            "data": {"sources": [{"path": self.root / "data.jsonl"}]},
            "reward": {"parts": {"exact": {"kind": "exact"}}},
            "rollout": {"prompts_per_step": 1, "samples_per_prompt": 2},
            "actor": {"model": model, "optimizer": {"learning_rate": 1e-6}, **actor},
        }
        return Args(Config(**tree), config_path=self.root / "c.yaml")

    def run(self, name: str = "a", *steps: int) -> RunDirectory:
        run = RunDirectory.create(self.args(name), overwrite=False)
        run.release()
        for step in steps:
            self.save(run.checkpoints, step)
        return run

    def save(self, root: Path, step: int, retention: Retention | None = None, **changed: Any) -> Path:
        saved = SavedSteps(root, retention or Retention())
        partial = saved.begin(step)
        replace(self.state(step), **changed).write(partial)
        (partial / "actor").mkdir()
        (partial / WEIGHTS).write_text("weights")
        return saved.commit(step, {name: facts_of(partial / name) for name in (STATE, WEIGHTS)}, metrics={}).path

    def state(self, step: int, config: Mapping[str, Any] | None = None) -> RunState:
        return RunState(
            step=step,
            version=step + 1,
            updates=step,
            moments=True,
            data={},
            config=config or resolved(self.args()),
            packages={},
            model=self.spec.facts(),
            reference=None,
        )

    def find(self, text: str, args: Args | None = None) -> Resumed | None:
        args = args or self.args()
        origin = find_origin(args, text)
        return None if origin is None else choose(origin, args, self.spec)

    def step(self, text: str, args: Args | None = None) -> int:
        found = self.find(text, args)
        assert found is not None
        return found.state.step


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_ckp_12_auto_is_the_newest_whole_step_by_number(place: Place) -> None:
    run = place.run("a", 9, 10, 100)
    (run.checkpoints / "step_final.tmp").mkdir()
    (run.checkpoints / ".step_200.partial").mkdir()
    (run.checkpoints / "latest").write_text("step_9\n")  # nobody trusts it
    assert place.step("auto") == 100


def test_auto_starts_anew_where_nothing_was_saved(place: Place) -> None:
    assert find_origin(place.args(), "auto") is None
    run = place.run("a")
    origin = find_origin(place.args(), "auto")
    assert origin is not None
    assert origin.run == run.path
    assert place.find("auto") is None


def test_without_a_name_auto_is_the_newest_run_of_this_config_that_saved(place: Place) -> None:
    place.run("c-20261201-000000", 1)
    place.run("c-20261202-000000", 2)
    place.run("c-20261203-000000")
    place.run("d-20261204-000000", 4)
    assert place.step("auto", place.args(None)) == 2
    assert find_origin(place.args("new"), "auto") is None


def test_a_step_by_its_number_or_path_or_its_run_by_path(place: Place) -> None:
    run = place.run("a", 10, 20)
    assert place.step("20") == 20
    assert place.step(str(run.path)) == 20
    assert place.step(str(run.checkpoints / "step_20")) == 20


def test_a_step_that_is_not_there_is_refused_with_those_that_are(place: Place) -> None:
    place.run("a", 10, 20)
    with pytest.raises(UserError, match=r"step 15 isn't saved in .*checkpoints \(there are 10, 20\)"):
        place.find("15")
    with pytest.raises(UserError, match="there is no run"):
        place.find("15", place.args("b"))


@pytest.mark.parametrize("text", ["nowhere", "run.steps=5", "c.yaml", "", "step_10", "-1"])
def test_what_names_no_step_is_refused_with_the_ways(place: Place, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.root)
    (place.root / "c.yaml").write_text("")
    with pytest.raises(UserError, match=r"(isn't there|neither a run's directory nor a saved step).*auto, a step's"):
        place.find(text)


DAMAGE = {
    "a shard is missing": lambda step: (step / WEIGHTS).unlink(),
    "a shard is shorter": lambda step: (step / WEIGHTS).write_text("weight"),
    "a bit of a shard is flipped": lambda step: (step / WEIGHTS).write_text("weightr"),
    "the data state is shorter": lambda step: (step / STATE).write_text("{"),
    "the manifest is missing": lambda step: (step / "manifest.json").unlink(),
    "the manifest is shorter": lambda step: (step / "manifest.json").write_text("{"),
    "all is missing": lambda step: [shutil.rmtree(step), step.mkdir()],
}


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=list(DAMAGE))
def test_ckp_04_a_damaged_step_is_passed_over_and_told(place: Place, harm: Any) -> None:
    run = place.run("a", 10, 20)
    harm(run.checkpoints / "step_20")
    found = place.find("auto")
    assert found is not None
    assert found.saved.step == 10
    assert "saved step 20 is damaged and passed over" in found.notes[0]
    assert place.step(str(run.path)) == 10
    with pytest.raises(UserError, match=r"step 20 is damaged: .* \(there are 10\)"):
        place.find("20")


def test_where_all_are_damaged_nothing_starts_anew(place: Place) -> None:
    run = place.run("a", 10)
    (run.checkpoints / "step_10" / WEIGHTS).unlink()
    with pytest.raises(UserError, match=r"no whole saved step is there; step 10 is damaged: actor/rank"):
        place.find("auto")


def test_an_older_step_is_gone_on_from_in_another_directory_alone(place: Place) -> None:
    run = place.run("a", 10, 20)
    for text in ("10", str(run.checkpoints / "step_10")):
        with pytest.raises(UserError, match=r"has the later steps 20, .*give another run.name"):
            place.find(text)
    branch = place.args("branch")
    assert place.step(str(run.checkpoints / "step_10"), branch) == 10
    origin = find_origin(branch, str(run.checkpoints / "step_10"))
    assert origin is not None
    assert origin.run is None


def test_a_step_that_lies_elsewhere_starts_a_new_run(place: Place) -> None:
    run = place.run("a", 10)
    shutil.copytree(run.checkpoints / "step_10", place.root / "kept" / "step_10")
    origin = find_origin(place.args(None), str(place.root / "kept" / "step_10"))
    assert origin is not None
    assert (origin.run, origin.wanted) == (None, 10)
    assert place.step(str(place.root / "kept" / "step_10"), place.args(None)) == 10


def test_ckp_03_retention_looks_at_the_disk_whatever_process_saved(place: Place) -> None:
    run = place.run("a")
    keep = Retention(keep_last=2)
    for step in (1, 2, 3):  # each from a process of its own
        resumed = place.find("auto")
        assert (0 if resumed is None else resumed.saved.step) == step - 1
        place.save(run.checkpoints, step, keep)
        if resumed is not None:
            assert resumed.saved.path.is_dir()
    assert sorted(path.name for path in run.checkpoints.glob("step_*")) == ["step_2", "step_3"]


def test_what_the_config_changes_is_told_key_by_key(place: Place) -> None:
    place.run("a", 10)
    args = place.args(optimizer={"learning_rate": 1e-7}, parallel={"tensor": 2})
    found = place.find("auto", args)
    assert found is not None
    assert [note.split(": ", 1)[1] for note in found.notes] == [
        "actor.parallel.tensor: 1 -> 2 (safe)",
        "actor.optimizer.learning_rate: 1e-06 -> 1e-07 (from here on the run takes another course)",
    ]


def test_a_run_cannot_end_before_the_saved_step(place: Place) -> None:
    place.run("a", 10)
    with pytest.raises(UserError, match=r"run\.steps = 9: the saved step is 10 already \(at least 10\)"):
        place.find("auto", place.args(steps=9))
    assert place.step("auto", place.args(steps=10)) == 10


def test_what_is_trained_stays_where_moments_were_saved(place: Place) -> None:
    run = place.run("a", 10)
    with pytest.raises(UserError, match=r"actor\.freeze.*moments"):
        place.find("auto", place.args(freeze=("embed",)))
    place.save(run.checkpoints, 20, moments=False)
    assert place.step("auto", place.args(freeze=("embed",))) == 20


def test_another_model_is_refused_with_the_facts_that_differ(place: Place) -> None:
    place.run("a", 10)
    (place.root / "model" / "config.json").write_text(json.dumps(MODEL | {"rope_theta": 5e5, "num_hidden_layers": 3}))
    place.spec = ModelSpec.read(place.root / "model")
    with pytest.raises(UserError) as refusal:
        place.find("auto")
    text = str(refusal.value)
    assert "its num_layers is 3, the saved model's 2" in text
    assert "its rope_theta is 500000.0, the saved model's 10000.0" in text


def test_dat_08_the_saved_config_has_both_seeds(place: Place) -> None:
    run = place.run("a", 10)
    state = RunState.read(run.checkpoints / "step_10")
    assert (state.config["run"]["seed"], state.config["data"]["seed"]) == (1, 1)
