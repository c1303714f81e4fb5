"""No number of a config is one that no machine can carry out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.errors import UserError
from rltrain.config.load import load_args
from rltrain.config.tree import Config

LOW = ("minimum", "exclusiveMinimum")
HIGH = ("maximum", "exclusiveMaximum")


def numbers(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON schema, but for those of lists, which have rules of their own."""
    if isinstance(schema, list):
        for item in schema:
            yield from numbers(item, where)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in ("integer", "number"):
        yield where, schema
    for name, below in schema.items():
        if name not in ("items", "prefixItems", "default"):
            yield from numbers(below, f"{where}.{name}")


def test_every_number_has_a_least_and_a_greatest_value() -> None:
    found = dict(numbers(Config.model_json_schema(), ""))
    assert len(found) > 50
    open_ended = [
        where for where, one in found.items() if not any(k in one for k in LOW) or not any(k in one for k in HIGH)
    ]
    assert open_ended == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run.steps=100000000000000000000000000", ["run.steps", "at most 1000000000"]),
        ("rollout.prompts_per_step=1000000000000", ["rollout.prompts_per_step", "at most 2097152"]),
        ("rollout.temperature=1e-300", ["rollout.temperature", "at least"]),
        ("rollout.temperature=0.001", ["rollout.temperature", "0.01", "vLLM"]),
        ("eval.sets.greedy.sampling.temperature=0.001", ["eval.sets.greedy.sampling.temperature", "0.01"]),
        ("rollout.temperature=1e6", ["rollout.temperature", "at most 100"]),
        ("rollout.samples_per_prompt=20000", ["rollout.samples_per_prompt", "at most 16384"]),
        ("actor.optimizer.learning_rate=1e-300", ["actor.optimizer.learning_rate", "0 or at least 1e-30"]),
        ("actor.optimizer.learning_rate=1e300", ["actor.optimizer.learning_rate", "at most 1"]),
        ("reward.parts.digits.weight=-1e300", ["reward.parts.digits.weight", "at least -1000000"]),
        ("cluster.start_timeout_s=1e300", ["cluster.start_timeout_s", "at most 2592000"]),
        ("rollout.timeout_s=1e-9", ["rollout.timeout_s", "at least 0.01"]),
        ("data.sources.0.weight=1e-300", ["data.sources[0].weight"]),
    ],
)
def test_absurd_numbers_are_refused(workspace: Path, override: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_args(workspace / "c.yaml", [override])
    (problem,) = caught.value.problems
    assert all(word in str(problem) for word in words), str(problem)


def test_zero_is_no_small_number(workspace: Path) -> None:
    args = load_args(workspace / "c.yaml", ["rollout.temperature=0", "actor.optimizer.learning_rate=0"])
    assert (args.rollout.temperature, args.actor.optimizer.learning_rate) == (0, 0)


@pytest.mark.parametrize(
    "address", ["''", "' '", "local", "host", "host:0", "host:65536", "host:x", "ray://h:1", "a b:1"]
)
def test_an_address_names_a_cluster(workspace: Path, address: str) -> None:
    with pytest.raises(UserError, match=r"cluster\.address.*must be auto or host:port"):
        load_args(workspace / "c.yaml", [f"cluster.address={address}"])


@pytest.mark.parametrize("address", ["auto", "host:6379", "192.0.2.1:65535", "'[::1]:6379'"])
def test_addresses_of_running_clusters_pass(workspace: Path, address: str) -> None:
    assert load_args(workspace / "c.yaml", [f"cluster.address={address}"]).cluster.address == address.strip("'")
