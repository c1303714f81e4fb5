"""Tests of rltrain.config.yaml_nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltrain.config.errors import UserError
from rltrain.config.yaml_nodes import plain, read_yaml, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1e6", 1e6),
        (".5", 0.5),
        ("-3", -3),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("e5", "e5"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"- a\n- b\n", "must be a mapping of sections, not a list"),
        (b"hello\n", "not one value"),
        (b"a: \xff\n", "must be UTF-8"),
        (b"a:\n\tb: 1\n", "not tabs"),
        (b"a: 1\nb: 2\na: 3\n", "is given twice"),
        (b"a: &x {b: 1}\nc:\n  <<: *x\n", "merge keys are not supported"),
        (b"a: &x [*x]\n", "inside its own anchor"),
        (b"a: !!python/name:os.system\n", "tags are not supported"),
        (b"a: 010\n", "can't start with 0"),
        (b"1: a\n", "a key must be text"),
        (b"a: [1\n", "flow sequence"),
        (b"a: 1\n---\nb: 1\n", "single document"),
    ],
)
def test_what_is_no_config_is_refused_with_the_reason(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_skipped_and_anchors_work(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: &x {b: 1e-3}\nc: *x\n")
    assert plain(read_yaml(path)) == {"a": {"b": 1e-3}, "c": {"b": 1e-3}}


def test_aliases_that_blow_up_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    path = tmp_path / "c.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match="aliases included"):
        read_yaml(path)


def test_places_count_lines_and_columns_from_one(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a:\n  b: 5\n")
    (below,) = read_yaml(path).items.values()
    assert plain(below) == {"b": 5}
    assert below.place.where == f"{path}:2:3"


@pytest.mark.parametrize("text", ["9" * 5000, "0x" + "f" * 5000])
def test_a_number_too_long_to_convert_is_no_integer(text: str) -> None:
    assert not isinstance(scalar(text), int)
