"""Tests of the page that lists every key of a config."""

from __future__ import annotations

from rltrain.config.tree import Config
from scripts.write_config_reference import PAGE, page


def test_the_page_is_what_the_config_says_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_keys_in_lists_named_entries_and_kinds_are_listed() -> None:
    text = page()
    for name in Config.model_fields:
        assert f"## {name}\n" in text
    for key in (
        "data.sources[].path",
        "eval.sets.<name>.sampling.temperature",
        "reward.parts.<name>{kind: custom}.function",
        "algorithm.kl{kind: k1 or k2 or k3}.coefficient",
    ):
        assert f"| `{key}` |" in text
