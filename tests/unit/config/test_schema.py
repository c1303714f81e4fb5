"""Tests of rltrain.config.schema."""

from __future__ import annotations

import pytest

from rltrain.config.errors import UserError
from rltrain.config.schema import rows
from rltrain.config.shapes import known_keys


def test_rows_say_type_default_and_meaning() -> None:
    by_key = {row.key: row for row in rows("rollout")}
    assert by_key["rollout.temperature"].type == "number"
    assert by_key["rollout.temperature"].default == "1.0"
    assert "greedy" in by_key["rollout.temperature"].meaning
    assert by_key["rollout.prompts_per_step"].default == "required"
    assert by_key["rollout.stop"].type == "list of text"


def test_every_key_has_a_row() -> None:
    assert {row.key for row in rows()} == set(known_keys())
    assert "eval.sets.<name>.sampling.top_k" in known_keys()
    assert "data.sources[].path" in known_keys()


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean rollout.max_tokens"):
        rows("rollout.max_token")
