from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rltrain.config.data import PromptFormat, Source
from rltrain.config.errors import UserError
from rltrain.data.rows import RowError, parse_row, read_rows
from rltrain.types.sample import Message


def a_format(**changes: Any) -> PromptFormat:
    return PromptFormat(sources=(Source(path=Path("x.jsonl")),), **changes)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    return path


def test_dat_04_lines_end_at_newlines_only(tmp_path: Path) -> None:
    """DAT-04: raw U+2028, U+2029 and U+0085 stay inside a row; BOM, CRLF and a missing last newline are accepted."""
    lines = [
        '{"prompt":"a\u2028b","label":"1"}',
        '{"prompt":"c\u2029d\u0085e","label":"2"}',
        '{"prompt":"f","label":"3"}',
    ]
    rows = list(read_rows(written(tmp_path, b"\xef\xbb\xbf" + "\r\n".join(lines).encode()), where="data"))
    assert [row.values for row in rows] == [
        {"prompt": "a\u2028b", "label": "1"},
        {"prompt": "c\u2029d\u0085e", "label": "2"},
        {"prompt": "f", "label": "3"},
    ]
    assert isinstance(rows[0].values, dict)
    assert len(rows[0].values["prompt"]) == 3


def test_numbers_are_the_lines_of_the_file(tmp_path: Path) -> None:
    rows = list(read_rows(written(tmp_path, b'{"prompt":"a"}\n\n{"prompt":"b"}\n'), where="data"))
    assert [row.number for row in rows] == [1, 3]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"{broken", "no JSON"),
        (b'{"prompt": "\xff"}', "no UTF-8"),
        (b'["prompt"]', "must be a JSON object, not a list"),
        (b'{"prompt": NaN}', "NaN is no JSON number"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_a_broken_line_is_a_value_and_the_next_is_read(tmp_path: Path, line: bytes, rule: str) -> None:
    broken, good = read_rows(written(tmp_path, line + b'\n{"prompt": "b"}\n'), where="data")
    assert isinstance(broken.values, RowError)
    assert rule in str(broken.values)
    assert good.values == {"prompt": "b"}


def test_parquet_rows_equal_jsonl_rows(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"q{index}"}], "label": str(index)} for index in range(9)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=4)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert list(read_rows(tmp_path / "rows.parquet", where="data")) == list(
        read_rows(written(tmp_path, lines), where="data")
    )


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("rows.csv", b"a,b", "jsonl or .parquet"),
        ("rows.parquet", b"no parquet", "can't be read"),
        ("", None, "is a directory"),
    ],
)
def test_unreadable_files_are_user_errors(tmp_path: Path, name: str, content: bytes | None, rule: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rule):
        list(read_rows(path, where="data.sources[0].path"))


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.sources\[0\]\.path .*: there is no such file"):
        list(read_rows(tmp_path / "none.jsonl", where="data.sources[0].path"))


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        ("7", "7"),
        (" 7 ", " 7 "),
        (-0.5, "-0.5"),
        (1e-7, "1e-07"),
        (Decimal("2.50"), "2.50"),
        ("", ""),
    ],
)
def test_dat_06_numbers_become_text_once(label: object, text: str) -> None:
    """DAT-06."""
    assert parse_row({"prompt": "a", "label": label}, a_format()).label == text


@pytest.mark.parametrize(
    ("label", "rule"),
    [
        (None, "is null"),
        (["7", "14/2"], "must be text or a number, not a list"),
        (True, "not a boolean"),
        ({"a": 1}, "not an object"),
        (float("nan"), "not a number"),
    ],
)
def test_dat_06_other_labels_are_refused(label: object, rule: str) -> None:
    """DAT-06: null and lists are refused in words."""
    with pytest.raises(RowError, match=rule):
        parse_row({"prompt": "a", "label": label}, a_format())


def test_a_label_may_be_absent_where_the_config_says_null() -> None:
    assert parse_row({"prompt": "a"}, a_format(label_key=None)).label is None


def test_a_missing_column_names_those_that_exist() -> None:
    with pytest.raises(RowError, match=r"no column 'prompt' \(prompt_key\); its columns: question, label"):
        parse_row({"question": "a", "label": "b"}, a_format())
    with pytest.raises(RowError, match=r"no column 'label' \(label_key\)"):
        parse_row({"prompt": "a"}, a_format())


def test_metadata_columns_travel() -> None:
    row = parse_row({"prompt": "a", "label": "b", "level": 3, "other": 4}, a_format(metadata_keys=("level",)))
    assert row.metadata == {"level": 3}


def test_messages_are_read() -> None:
    turns = [{"role": "system", "content": ""}, {"role": "user", "content": "a", "name": None}]
    content = parse_row({"prompt": turns, "label": "b"}, a_format()).content
    assert content == (Message(role="system", content=""), Message(role="user", content="a"))


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        ("", "prompt is empty"),
        (" \n", "prompt is empty"),
        (None, "not null"),
        (7, "not a number"),
        ([], "no messages"),
        (["a"], r"prompt\[0\] must be an object"),
        ([{"role": "user"}], r"prompt\[0\]\.content must be text, not null"),
        ([{"role": "user", "content": [{"type": "image"}]}], r"prompt\[0\]\.content must be text, not a list"),
        ([{"role": "user", "content": "a", "tool_calls": [1]}], "besides role and content: tool_calls"),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "ends with the assistant's"),
    ],
)
def test_prompts_that_are_none_are_refused(prompt: object, rule: str) -> None:
    with pytest.raises(RowError, match=rule):
        parse_row({"prompt": prompt, "label": "b"}, a_format())


def test_half_a_surrogate_pair_is_a_bad_row_and_a_whole_pair_is_text(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"prompt": "\\ud800"}\n{"prompt": "\\ud83d\\ude00"}\n')
    half, whole = [row.values for row in read_rows(path, where="data")]
    assert isinstance(half, RowError)
    assert "surrogate" in str(half)
    assert whole == {"prompt": "\U0001f600"}


@pytest.mark.parametrize(
    ("line", "column", "rule"),
    [
        (b'{"prompt": "a", }', 17, "expecting property name enclosed in double quotes"),
        (b'{"prompt": "a"', 15, "expecting ',' delimiter"),
        (b'{"prompt" "a"}', 11, "expecting ':' delimiter"),
        (b'{"prompt": "a"} x', 17, "extra data"),
        ('{"prompt": "\u00e9'.encode() + b'\xff"}', 14, "no UTF-8: invalid start byte"),
    ],
)
def test_a_broken_line_has_the_column_within_it(tmp_path: Path, line: bytes, column: int, rule: str) -> None:
    _, broken = read_rows(written(tmp_path, b'{"prompt":"a"}\n' + line + b"\n"), where="data")
    assert isinstance(broken.values, RowError)
    assert broken.values.column == column
    assert rule in str(broken.values)
    assert "line" not in str(broken.values) and "char" not in str(broken.values)
