"""The config's schema, for editors (JSON) and for people (a table of the keys below one)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rltrain.config.errors import UserError
from rltrain.config.section import Section
from rltrain.config.shapes import is_variant, kinds, known_keys, options, sections
from rltrain.config.tree import Config


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    type: str
    default: str
    meaning: str


def json_schema() -> str:
    """JSON schema of a config file; `base` is a key of files only."""
    schema = Config.model_json_schema()
    for one in (schema, *schema["$defs"].values()):
        for name, value in one.get("properties", {}).items():
            if isinstance(value.get("default"), dict):  # as good as left out, see absent.py
                one["properties"][name] = {"anyOf": [value, {"type": "null"}]}
    schema["properties"]["base"] = {"type": "string", "description": "Another config that this one changes."}
    schema["required"] = []  # what a base gives need not be given again
    return json.dumps(schema, indent=2)


def rows(key: str = "") -> list[Row]:
    """The keys at and below one, as `known_keys` spells them. Raises UserError where there is no such key."""
    found = [
        row for row in _rows(Config, "") if not key or row.key == key or row.key.startswith((f"{key}.", f"{key}["))
    ]
    if not found:
        near = difflib.get_close_matches(key, known_keys(), 1)
        hint = f"did you mean {near[0]}?" if near else f"sections: {', '.join(Config.model_fields)}"
        raise UserError.single(key, "is an unknown key", place="command line", hint=hint)
    return found


def _rows(annotation: Any, prefix: str) -> Iterator[Row]:
    for section in sections(annotation):
        variant = f" [{' or '.join(kinds(section))}]" if is_variant(annotation) else ""
        for name, field in section.model_fields.items():
            path = f"{prefix}.{name}" if prefix else name
            yield Row(
                path, _type(field.annotation), _default(field), " ".join((field.description or "").split()) + variant
            )
            yield from _rows(field.annotation, path)
    for option in options(annotation):
        parts = get_args(option)
        if get_origin(option) is dict:
            yield from _rows(parts[1], f"{prefix}.<name>")
        elif get_origin(option) is tuple:
            yield from _rows(parts[0], f"{prefix}[]")


WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}


def _type(annotation: Any) -> str:
    return " or ".join(dict.fromkeys(name for option in options(annotation) for name in _names(option)))


def _names(option: Any) -> list[str]:
    origin, parts = get_origin(option), get_args(option)
    if origin is Literal:
        return [json.dumps(value) for value in parts]
    if origin is tuple:
        return [f"list of {_type(parts[0])}"]
    if origin is dict or sections(option):
        return ["mapping"]
    return [WORDS.get(option, "any value")]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if isinstance(field.default, Section):
        kind = field.default.model_dump().get("kind")
        return f"kind: {kind}" if kind else ""
    return json.dumps(field.default, default=str)
