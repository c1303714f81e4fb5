"""Layers of a config: a file on top of its `base`, overrides on top of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rltrain.config.errors import UserError
from rltrain.config.paths import absolute
from rltrain.config.readable import unreadable
from rltrain.config.shapes import child, chosen, is_variant
from rltrain.config.tree import Config
from rltrain.config.yaml_nodes import Leaf, ListNode, MapNode, Node, read_yaml, shown

BASE = "base"


def read_layers(path: Path) -> MapNode:
    """The file merged onto its base, and that onto its own. Raises UserError."""
    layers: list[MapNode] = []
    seen: list[Path] = []
    while True:
        layer = read_yaml(path)
        seen.append(path.resolve())
        layers.append(layer)
        base = layer.items.pop(BASE, None)
        if base is None:
            break
        path = _base_path(base)
        if path.resolve() in seen:
            chain = " -> ".join(str(file) for file in [*seen[seen.index(path.resolve()) :], path.resolve()])
            raise UserError.single(BASE, f"goes round in a circle: {chain}", value=shown(base), place=base.place.where)
    merged = layers.pop()
    while layers:
        merged = merge_root(merged, layers.pop())
    return merged


def merge_root(lower: MapNode, upper: MapNode) -> MapNode:
    merged = merge(lower, upper, annotation=Config, key="")
    assert isinstance(merged, MapNode)
    return merged


def merge(lower: Node, upper: Node, *, annotation: Any, key: str) -> Node:
    """`upper` over `lower`: mappings are merged key by key, all else is replaced.

    Where `kind` changes, keys that only the former variant has are left out.
    """
    if isinstance(lower, ListNode) and isinstance(upper, MapNode) and upper.partial:
        return _merge_items(lower, upper, annotation=annotation, key=key)
    if not isinstance(lower, MapNode) or not isinstance(upper, MapNode):
        return upper
    below = _without_other_kind(lower, upper, annotation)
    kind = _kind(upper) or _kind(lower)
    items, places = dict(below), {name: lower.key_places[name] for name in below if name in lower.key_places}
    for name, value in upper.items.items():
        path = f"{key}.{name}" if key else name
        there = items.get(name)
        shape = child(annotation, name, kind=kind)
        items[name] = value if there is None else merge(there, value, annotation=shape, key=path)
        if there is None or not isinstance(value, MapNode):
            places[name] = upper.key_places.get(name, value.place)
    return MapNode(lower.place, items, places, lower.partial and upper.partial)


def _merge_items(lower: ListNode, upper: MapNode, *, annotation: Any, key: str) -> ListNode:
    items = list(lower.items)
    for name, value in upper.items.items():
        if not name.isdecimal() or int(name) >= len(items):
            rule = f"has {len(items)} items, so an override names one of 0 to {len(items) - 1}"
            raise UserError.single(f"{key}.{name}", rule, place=value.place.where)
        index = int(name)
        items[index] = merge(items[index], value, annotation=child(annotation, index), key=f"{key}.{name}")
    return replace(lower, items=tuple(items))


def _without_other_kind(lower: MapNode, upper: MapNode, annotation: Any) -> dict[str, Node]:
    before, after = _kind(lower), _kind(upper)
    if after is None or before == after or not is_variant(annotation):
        return lower.items
    keep = {name for section in chosen(annotation, after) for name in section.model_fields}
    return {name: value for name, value in lower.items.items() if name in keep}


def _kind(node: MapNode) -> object:
    kind = node.items.get("kind")
    return kind.value if isinstance(kind, Leaf) else None


def _base_path(base: Node) -> Path:
    if not isinstance(base, Leaf) or not isinstance(base.value, str):
        rule = "must be the path of another config"
        raise UserError.single(BASE, rule, value=shown(base), place=base.place.where)
    try:
        path = Path(absolute(base.value, base.place.directory))
    except ValueError as error:
        raise UserError.single(BASE, str(error), value=shown(base), place=base.place.where) from error
    if reason := unreadable(path):
        raise UserError.single(BASE, f"{path}: {reason}", value=shown(base), place=base.place.where)
    return path
