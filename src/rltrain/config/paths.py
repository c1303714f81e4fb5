"""Paths of a config made absolute: `~` and `${VARIABLE}` are expanded, the rest counts from where it was written."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rltrain.config.errors import Problem
from rltrain.config.redact import is_secret_key
from rltrain.config.shapes import child, is_path
from rltrain.config.tree import Config
from rltrain.config.yaml_nodes import Leaf, ListNode, MapNode, Node, shown

NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def with_absolute_paths(root: MapNode) -> tuple[MapNode, list[Problem]]:
    """The tree with every path absolute, and a problem for each that can't be."""
    problems: list[Problem] = []
    made = _walk(root, Config, key="", problems=problems)
    assert isinstance(made, MapNode)
    return made, problems


def _walk(node: Node, annotation: Any, *, key: str, problems: list[Problem]) -> Node:
    if isinstance(node, MapNode):
        kind = node.items.get("kind")
        kind = kind.value if isinstance(kind, Leaf) else None
        items = {
            name: _walk(
                value, child(annotation, name, kind=kind), key=f"{key}.{name}" if key else name, problems=problems
            )
            for name, value in node.items.items()
        }
        return replace(node, items=items)
    if isinstance(node, ListNode):
        items = [
            _walk(item, child(annotation, i), key=f"{key}[{i}]", problems=problems) for i, item in enumerate(node.items)
        ]
        return replace(node, items=tuple(items))
    if not is_path(annotation) or not isinstance(node.value, str):
        return node
    try:
        return replace(node, value=absolute(node.value, node.place.directory))
    except ValueError as error:
        problems.append(Problem(key=key, rule=str(error), value=shown(node), place=node.place.where))
        return replace(node, value="/")  # a path, so that the key is told once


def absolute(text: str, directory: Path) -> str:
    """The path, which counts from `directory`. Raises ValueError with the rule that is broken."""
    if not text.strip():
        raise ValueError("must not be empty")
    expanded = VARIABLE.sub(_variable, text)
    if "$" in expanded and "${" in text and VARIABLE.search(text) is None:
        raise ValueError("a variable is written ${NAME}")
    try:
        path = Path(expanded).expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such user's home directory") from error
    found = os.path.normpath(directory / path)
    if NO_TEXT.search(found):
        raise ValueError(f"must not hold control characters or bytes that aren't UTF-8: {found!r}")
    return found


def _variable(match: re.Match[str]) -> str:
    name = match.group(1)
    if is_secret_key(name):
        raise ValueError(f"the variable {name} looks like a secret, and paths are shown")
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"the environment variable {name} is {'empty' if value == '' else 'not set'}")
    return value
