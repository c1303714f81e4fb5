"""Which changes of a config a resumed run is told of, and how."""

from __future__ import annotations

from typing import Any

import pytest

from rltrain.trainer.changes import changes, newly_trained


def config(**more: Any) -> dict[str, Any]:
    return {
        "run": {"name": "a", "steps": 10, "seed": 1},
        "actor": {
            "parallel": {"tensor": 1},
            "optimizer": {"learning_rate": 1e-6, "offload": False, "schedule": {"kind": "constant"}},
            "freeze": [],
        },
        "rollout": {"threads": None, "temperature": 1.0},
        "eval": None,
    } | more


CASES = {
    "name": ({"run": {"name": "b", "steps": 10, "seed": 1}}, ["run.name"], []),
    "seed": ({"run": {"name": "a", "steps": 10, "seed": 2}}, [], ["run.seed"]),
    "more steps": ({"run": {"name": "a", "steps": 20, "seed": 1}}, ["run.steps"], []),
    "an evaluation": ({"eval": {"every": 5, "sets": {}}}, ["eval", "eval.every", "eval.sets"], []),
    "threads": ({"rollout": {"threads": 2, "temperature": 0.9}}, ["rollout.threads"], ["rollout.temperature"]),
    "a new key": ({"rolloutx": 1}, [], ["rolloutx"]),
}


@pytest.mark.parametrize(("more", "safe", "course"), CASES.values(), ids=list(CASES))
def test_each_changed_key_is_safe_or_changes_the_course(
    more: dict[str, Any], safe: list[str], course: list[str]
) -> None:
    found = changes(config(), config(**more))
    assert sorted(change.key for change in found if change.safe) == safe
    assert [change.key for change in found if not change.safe] == course


def test_nothing_changed() -> None:
    assert changes(config(), config()) == []


def decaying(steps: int, decay_steps: int | None) -> dict[str, Any]:
    tree = config(run={"name": "a", "steps": steps, "seed": 1})
    tree["actor"]["optimizer"]["schedule"] = {"kind": "cosine", "decay_steps": decay_steps}
    return tree


@pytest.mark.parametrize(("decay_steps", "safe"), [(None, False), (10, True)])
def test_more_steps_stretch_a_decay_that_ends_with_the_run(decay_steps: int | None, safe: bool) -> None:
    (change,) = changes(decaying(10, decay_steps), decaying(20, decay_steps))
    assert (change.key, change.safe) == ("run.steps", safe)


def test_a_change_says_what_it_was_what_it_is_and_what_that_means() -> None:
    (change,) = changes(config(), config(rollout={"threads": None, "temperature": 0.5}))
    assert str(change) == "rollout.temperature: 1.0 -> 0.5 (from here on the run takes another course)"


def test_what_is_trained_may_need_moments_that_were_not_saved() -> None:
    tree = config()
    tree["actor"]["freeze"] = ["embed"]
    assert [change.key for change in newly_trained(changes(tree, config()))] == ["actor.freeze"]
    assert list(newly_trained(changes(config(), config(eval={"every": 5})))) == []
