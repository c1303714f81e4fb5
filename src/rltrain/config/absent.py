"""Optional sections that are null: as good as left out, so that a feature is switched off in one way everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rltrain.config.section import Section
from rltrain.config.shapes import child, chosen
from rltrain.config.yaml_nodes import Leaf, ListNode, MapNode, Node


def without_null_sections(node: Node, annotation: Any) -> Node:
    """The tree without keys that are null and whose default is a section or a mapping."""
    if isinstance(node, ListNode):
        items = (without_null_sections(item, child(annotation, place)) for place, item in enumerate(node.items))
        return replace(node, items=tuple(items))
    if not isinstance(node, MapNode):
        return node
    kind = node.items.get("kind")
    value = kind.value if isinstance(kind, Leaf) else None
    absent = {name for section in chosen(annotation, value) for name in _optional_sections(section)}
    return replace(
        node,
        items={
            name: without_null_sections(below, child(annotation, name, kind=value))
            for name, below in node.items.items()
            if not (name in absent and isinstance(below, Leaf) and below.value is None)
        },
    )


def _optional_sections(section: type[Section]) -> list[str]:
    return [name for name, field in section.model_fields.items() if isinstance(field.default, Section | dict)]
