"""What the sections' annotations say about a place in the tree: its keys, its variants, whether it is a path."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from rltrain.config.section import Section
from rltrain.config.tree import Config


def options(annotation: Any) -> tuple[Any, ...]:
    """The types that a value may have, without `Annotated` and null."""
    if get_origin(annotation) is Annotated:
        return options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for part in get_args(annotation) for option in options(part))
    return () if annotation is type(None) else (annotation,)


def sections(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that a mapping at this place may be; several where `kind` picks one."""
    return tuple(option for option in options(annotation) if isinstance(option, type) and issubclass(option, Section))


def kinds(section: type[Section]) -> tuple[str, ...]:
    """The values of `kind` that stand for this variant."""
    field = section.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def is_variant(annotation: Any) -> bool:
    """Whether `kind` picks the section here."""
    found = sections(annotation)
    return bool(found) and all(kinds(section) for section in found) and len(found) > 1


def chosen(annotation: Any, kind: object) -> tuple[type[Section], ...]:
    """The section of this kind, or all of them where none is of it."""
    found = sections(annotation)
    return tuple(section for section in found if kind in kinds(section)) or found


def child(annotation: Any, key: str | int, *, kind: object = None) -> Any:
    """The annotation of a key or of a list's item; None where nothing is said about it."""
    if isinstance(key, str):
        for section in chosen(annotation, kind):
            if key in section.model_fields:
                field = section.model_fields[key]
                return field.annotation
    for option in options(annotation):
        parts = get_args(option)
        if isinstance(key, str) and get_origin(option) is dict:
            return parts[1]
        if not isinstance(key, str) and get_origin(option) in (tuple, list):
            return parts[0]
    return None


def is_path(annotation: Any) -> bool:
    return Path in options(annotation)


def is_open(annotation: Any) -> bool:
    """Whether a mapping here has names of the user's own choice."""
    return any(get_origin(option) is dict for option in options(annotation))


@cache
def known_keys() -> tuple[str, ...]:
    """Every key of the schema as a dotted path; `<name>` is a name of the user's choice, `[]` an item of a list."""
    return tuple(dict.fromkeys(_keys(Config, "")))


def _keys(annotation: Any, prefix: str) -> Iterator[str]:
    for section in sections(annotation):
        for name, field in section.model_fields.items():
            path = f"{prefix}.{name}" if prefix else name
            yield path
            yield from _keys(field.annotation, path)
    for option in options(annotation):
        parts = get_args(option)
        if get_origin(option) is dict:
            yield from _keys(parts[1], f"{prefix}.<name>")
        elif get_origin(option) is tuple:
            yield from _keys(parts[0], f"{prefix}[]")
