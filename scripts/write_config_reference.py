"""Writes `docs/configuration.md`, every key of a config, from the config's own types and docstrings.

Usage: python scripts/write_config_reference.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltrain.config.tree import Config

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
INTRODUCTION = """# Every key of a config

Written by `scripts/write_config_reference.py` from `src/rltrain/config/`; as JSON schema: `rltrain config schema`.
`a[].b` is a key of each item of a list, `a.<name>.b` one of each entry under names of your own choice, and
`a{kind: x}.b` one that is there with that `kind`.
"""
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}

Schema = dict[str, Any]
"""A JSON schema as pydantic gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    key: str
    type: str
    default: str
    meaning: str


def resolved(schema: Schema, definitions: Schema) -> Schema:
    """The schema that a reference stands for, with what is said beside the reference."""
    if "$ref" not in schema:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return definitions[schema["$ref"].rpartition("/")[2]] | beside


def alternatives(schema: Schema, definitions: Schema) -> list[Schema]:
    """What the value may be, without null."""
    options = schema.get("oneOf") or schema.get("anyOf") or [schema]
    return [option for option in (resolved(one, definitions) for one in options) if option.get("type") != "null"]


def shown(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def type_name(schema: Schema, definitions: Schema) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    options = alternatives(schema, definitions)
    if "discriminator" in schema or any("discriminator" in option for option in options):
        return "one of the kinds below"
    if len(options) > 1:
        return " or ".join(type_name(option, definitions) for option in options)
    option = options[0] if options else schema
    if "enum" in option and option is not schema:
        return type_name(option, definitions)
    if option.get("type") == "array":
        return f"list of {type_name(resolved(option.get('items', {}), definitions), definitions)}"
    bounds = [f"{sign} {shown(option[name])}" for name, sign in BOUNDS.items() if name in option]
    name = {"object": "mapping", "string": "text"}.get(option.get("type", ""), option.get("type", "any value"))
    return " ".join([name, ", ".join(bounds)]) if bounds else name


def default_of(name: str, schema: Schema, parent: Schema) -> str:
    if name in parent.get("required", ()):
        return "required"
    default = schema.get("default")
    return f"`{json.dumps(default)}`" if not isinstance(default, dict) or not default else ""


def rows_below(schema: Schema, prefix: str, definitions: Schema) -> Iterator[Row]:
    """The keys inside a value: those of a section, of a list's items, of named entries, of each kind."""
    for option in alternatives(schema, definitions):
        kind = option.get("properties", {}).get("kind")
        if kind is not None and ("discriminator" in schema or "oneOf" in schema):
            kinds = [kind["const"]] if "const" in kind else kind["enum"]
            yield from rows_of(option, f"{prefix}{{kind: {' or '.join(kinds)}}}", definitions)
        elif "properties" in option:
            yield from rows_of(option, prefix, definitions)
        elif "items" in option:
            yield from rows_below(option["items"], f"{prefix}[]", definitions)
        elif isinstance(option.get("additionalProperties"), dict):
            yield from rows_below(option["additionalProperties"], f"{prefix}.<name>", definitions)
        elif "patternProperties" in option:
            for named in option["patternProperties"].values():
                yield from rows_below(named, f"{prefix}.<name>", definitions)
        elif "oneOf" in option and option is not schema:
            yield from rows_below(option, prefix, definitions)


def rows_of(section: Schema, prefix: str, definitions: Schema) -> Iterator[Row]:
    if prefix.endswith("}"):
        yield Row(key=prefix, type="", default="", meaning=section.get("description", ""))
    for name, schema in section["properties"].items():
        if name == "kind" and prefix.endswith("}"):
            continue
        key = f"{prefix}.{name}"
        yield Row(
            key=key,
            type=type_name(resolved(schema, definitions), definitions),
            default=default_of(name, schema, section),
            meaning=resolved(schema, definitions).get("description", ""),
        )
        yield from rows_below(schema, key, definitions)


def page() -> str:
    """The whole page as Markdown."""
    schema = Config.model_json_schema()
    definitions: Schema = schema["$defs"]
    parts = [INTRODUCTION]
    for name, section in schema["properties"].items():
        (content,) = alternatives(section, definitions)
        lines = [f"## {name}", "", "| key | value | default | meaning |", "|---|---|---|---|"]
        for row in rows_of(content, name, definitions):
            cells = [f"`{row.key}`", row.type, row.default, " ".join(row.meaning.split())]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
