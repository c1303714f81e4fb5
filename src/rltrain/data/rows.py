"""Rows of jsonl and parquet files, each with its place, or what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, cast

from rltrain.config.data import PromptFormat
from rltrain.config.errors import UserError
from rltrain.config.readable import unreadable
from rltrain.types.sample import Message

KINDS = {
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
}
"""Python's types by their names in JSON."""


class RowError(ValueError):
    """A row that can't be used; the message is the rule it breaks, `column` the place in a line, from 1."""

    def __init__(self, rule: str, *, column: int | None = None) -> None:
        super().__init__(rule)
        self.column = column


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as its file has it. `number` counts lines (jsonl) or rows (parquet) from 1."""

    number: int
    values: Mapping[str, Any] | RowError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The columns that the format names, checked."""

    content: str | tuple[Message, ...]
    label: str | None
    metadata: Mapping[str, Any]


def read_rows(path: Path, *, where: str) -> Iterator[RawRow]:
    """Rows of a `.jsonl` or `.parquet` file, streamed. Raises UserError (key `where`) where the file can't be read."""
    if reason := unreadable(path):
        raise UserError.single(where, reason, value=path)
    try:
        if path.suffix == ".jsonl":
            yield from _jsonl(path)
        elif path.suffix == ".parquet":
            yield from _parquet(path)
        else:
            raise UserError.single(where, "must end in .jsonl or .parquet", value=path)
    except (OSError, ValueError) as error:  # pyarrow's errors are of both kinds
        if isinstance(error, UserError):
            raise
        raise UserError.single(where, f"can't be read: {error}", value=path) from error


def parse_row(values: Mapping[str, Any], fmt: PromptFormat) -> Row:
    """Prompt, label and metadata of a row. Raises RowError."""
    return Row(
        content=_content(_column(values, fmt.prompt_key, key="prompt_key"), key=fmt.prompt_key),
        label=None if fmt.label_key is None else _label(values, fmt.label_key),
        metadata={name: _column(values, name, key="metadata_keys") for name in fmt.metadata_keys},
    )


def _jsonl(path: Path) -> Iterator[RawRow]:
    """Lines end at a newline alone: U+2028, U+2029 and U+0085 may stand inside a row. Blank lines are no rows."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield RawRow(number, _object(line))


def _object(line: bytes) -> dict[str, Any] | RowError:
    try:
        value: Any = json.loads(line.decode("utf-8").rstrip(), parse_constant=_refuse_constant)
        if b"\\u" in line:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails where half a surrogate pair stands alone
    except UnicodeEncodeError:
        return RowError("holds half a surrogate pair (\\ud800 to \\udfff), which is no text")
    except json.JSONDecodeError as error:
        expected = error.msg[:1].lower() + error.msg[1:]
        return RowError(f"is no JSON: {expected} here", column=error.pos + 1)
    except UnicodeDecodeError as error:
        return RowError(f"is no UTF-8: {error.reason}", column=len(line[: error.start].decode("utf-8")) + 1)
    except (ValueError, RecursionError) as error:
        return RowError(f"is no JSON: {error}")
    if not isinstance(value, dict):
        return RowError(f"must be a JSON object, not {_kind(value)}")
    return cast(dict[str, Any], value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _parquet(path: Path) -> Iterator[RawRow]:
    # It takes a quarter of a second.
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

    with cast(Any, parquet).ParquetFile(path) as file:
        number = 0
        for batch in file.iter_batches(batch_size=4096):
            for values in batch.to_pylist():
                number += 1
                yield RawRow(number, values)


def _column(values: Mapping[str, Any], name: str, *, key: str) -> Any:
    if name not in values:
        raise RowError(f"has no column {name!r} ({key}); its columns: {', '.join(values) or 'none'}")
    return values[name]


def _content(value: Any, *, key: str) -> str | tuple[Message, ...]:
    if isinstance(value, str):
        if not value.strip():
            raise RowError(f"{key} is empty")
        return value
    if not isinstance(value, list):
        raise RowError(f"{key} must be text or a list of messages, not {_kind(value)}")
    if not value:
        raise RowError(f"{key} has no messages")
    items = cast(list[Any], value)
    messages = tuple(_message(item, place=f"{key}[{index}]") for index, item in enumerate(items))
    if messages[-1].role == "assistant":
        raise RowError(f"{key} ends with the assistant's message; a prompt ends before it")
    return messages


def _message(value: Any, *, place: str) -> Message:
    if not isinstance(value, dict):
        raise RowError(f"{place} must be an object with role and content, not {_kind(value)}")
    given = cast(dict[str, Any], value)
    fields = {name: item for name, item in given.items() if item is not None}
    unknown = fields.keys() - {"role", "content"}
    if unknown:
        raise RowError(f"{place} has keys besides role and content: {', '.join(sorted(unknown))}")
    for name in ("role", "content"):
        if not isinstance(fields.get(name), str):
            raise RowError(f"{place}.{name} must be text, not {_kind(fields.get(name))}")
    return Message(role=fields["role"], content=fields["content"])


def _label(values: Mapping[str, Any], key: str) -> str:
    """Text as it is; a number as text, integral ones without a fraction (7.0 is `7`)."""
    value = _column(values, key, key="label_key")
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | Decimal) and value == value and abs(value) != float("inf"):
        return str(int(value)) if value == int(value) else str(value)
    if value is None:
        raise RowError(f"{key} is null (label_key: null where rewards need no label)")
    raise RowError(f"{key} must be text or a number, not {_kind(value)}")


def _kind(value: object) -> str:
    return "null" if value is None else KINDS.get(type(value).__name__, type(value).__name__)
