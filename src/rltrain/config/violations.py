"""pydantic's errors as problems in the user's words: place, full key, value, rule and the nearest key that exists."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rltrain.config.errors import Problem
from rltrain.config.shapes import child, chosen, is_variant, kinds, known_keys, sections
from rltrain.config.tree import Config
from rltrain.config.yaml_nodes import Leaf, ListNode, MapNode, Node, shown

BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "path": "a path",
    "finite": "a finite number",
    "model_attributes": "a mapping",
}


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an error's location leads: the last thing of the user's on the way there."""

    key: str
    """Dotted, without pydantic's names of variants."""
    parent: MapNode | ListNode | None
    node: Node | None
    """None where the user wrote nothing."""
    annotation: Any
    """Of the last mapping or list on the way."""
    name: str | int


class Violations:
    def __init__(self, root: MapNode, path: Path) -> None:
        self._root = root
        self._path = path

    def problems(self, error: ValidationError, *, without: Collection[str] = ()) -> list[Problem]:
        """A problem for each error, but for keys in `without`; a key that several alternatives refuse is told once."""
        found: dict[str, Problem] = {}
        for detail in error.errors(include_url=False, include_context=True):
            if self._counts_only_valid_items(detail):
                continue
            problem = self._problem(detail)
            if problem.key not in without:
                found.setdefault(problem.key, problem)
        return list(found.values())

    def located(self, problem: Problem) -> Problem:
        """With the place and value of its key, or the place of the nearest mapping that was written."""
        if problem.place is not None:
            return problem
        names = problem.key.replace("[", ".").replace("]", "").split(".")
        node: Node = self._root
        for depth, name in enumerate(names):
            below = _below(node, int(name) if name.isdecimal() and isinstance(node, ListNode) else name)
            if below is None:
                return replace(problem, place=node.place.where) if depth else replace(problem, place=str(self._path))
            node = below
        value = shown(node) if problem.value is None and isinstance(node, Leaf) else problem.value
        return replace(problem, place=node.place.where, value=value)

    def _counts_only_valid_items(self, detail: ErrorDetails) -> bool:
        """pydantic calls a list too short where items are missing that were refused for reasons of their own."""
        node = self._spot(detail["loc"]).node
        least = (detail.get("ctx") or {}).get("min_length", 0)
        return detail["type"] == "too_short" and isinstance(node, MapNode | ListNode) and len(node.items) >= least

    def _problem(self, detail: ErrorDetails) -> Problem:
        spot = self._spot(detail["loc"])
        kind = detail["type"]
        if kind == "extra_forbidden":
            return self._unknown(spot)
        if kind == "missing":
            place = (
                spot.parent.place.where
                if spot.parent is not None and spot.parent is not self._root
                else str(self._path)
            )
            return Problem(key=spot.key, rule="is required", place=place, hint=self._instead_of_missing(spot))
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            return self._kind(spot)
        node = spot.node
        return Problem(
            key=spot.key,
            rule=_rule(detail),
            value=None if node is None else shown(node),
            place=str(self._path) if node is None else node.place.where,
            hint=_hint(kind, node, detail),
        )

    def _spot(self, location: tuple[int | str, ...]) -> Spot:
        node: Node | None = self._root
        annotation: Any = Config
        spot = Spot("", None, node, annotation, "")
        key = ""
        skip = False
        for part in location:
            if skip:
                skip = False
                continue
            if not isinstance(node, MapNode | ListNode) or part == "[key]":
                break  # what follows names an alternative of a union
            name = part if isinstance(part, int) or part.strip() else f'"{part}"'
            key = f"{key}[{name}]" if isinstance(name, int) else f"{key}.{name}" if key else name
            below = _below(node, part)
            spot = Spot(key, node, below, annotation, part)
            annotation = child(annotation, part, kind=_kind_of(node))
            skip = is_variant(annotation) and isinstance(below, MapNode)
            node = below
        return spot

    def _unknown(self, spot: Spot) -> Problem:
        place = spot.parent.place if spot.parent is not None else self._root.place
        if isinstance(spot.parent, MapNode):
            place = spot.parent.key_places.get(str(spot.name), spot.node.place if spot.node is not None else place)
        value = shown(spot.node) if isinstance(spot.node, Leaf) else None
        rule, hint = _unknown_key(spot)
        return Problem(key=spot.key, rule=rule, value=value, place=place.where, hint=hint)

    def _kind(self, spot: Spot) -> Problem:
        node = spot.node
        assert node is not None
        annotation = child(spot.annotation, spot.name, kind=_kind_of(spot.parent))
        names = [kind for section in sections(annotation) for kind in kinds(section)]
        given = node.items.get("kind") if isinstance(node, MapNode) else None
        near = difflib.get_close_matches(str(given.value), names, 1) if isinstance(given, Leaf) else []
        return Problem(
            key=f"{spot.key}.kind",
            rule=f"must be one of {', '.join(names)}"
            if given is not None
            else f"is required: one of {', '.join(names)}",
            value=None if given is None else shown(given),
            place=(given or node).place.where,
            hint=f"did you mean {near[0]}?" if near else None,
        )

    def _instead_of_missing(self, spot: Spot) -> str | None:
        if not isinstance(spot.parent, MapNode):
            return None
        unknown = [name for name in spot.parent.items if child(spot.annotation, name) is None]
        near = difflib.get_close_matches(str(spot.name), unknown, 1, cutoff=0.7)
        return f"{near[0]} was given" if near else None


def _below(node: Node, name: str | int) -> Node | None:
    if isinstance(node, MapNode):
        return node.items.get(str(name))
    if isinstance(node, ListNode) and isinstance(name, int) and name < len(node.items):
        return node.items[name]
    return None


def _kind_of(node: Node | None) -> object:
    kind = node.items.get("kind") if isinstance(node, MapNode) else None
    return kind.value if isinstance(kind, Leaf) else None


def _unknown_key(spot: Spot) -> tuple[str, str | None]:
    """The rule, and where the key may have been meant to stand."""
    name = str(spot.name)
    found = chosen(spot.annotation, _kind_of(spot.parent))
    names = list(dict.fromkeys(key for section in found for key in section.model_fields))
    others = [section for section in sections(spot.annotation) if name in section.model_fields]
    if others:
        kind = _kind_of(spot.parent)
        fitting = " or ".join(kind for section in others for kind in kinds(section))
        return f"is no key of kind {kind}", f"it belongs to kind {fitting}"
    near = difflib.get_close_matches(name, names, 1, cutoff=0.7)
    if near:
        return "is an unknown key", f"did you mean {near[0]}?"
    elsewhere = [key for key in known_keys() if key.rpartition(".")[2] == name and "." in key] or [
        key for key in known_keys() if key == name
    ]
    if elsewhere:
        return "is an unknown key here", f"it belongs to {' or '.join(elsewhere[:3])}"
    last = {key.rpartition(".")[2] for key in known_keys()}
    far = difflib.get_close_matches(name, last, 1, cutoff=0.8)
    if far:
        key = next(key for key in known_keys() if key.rpartition(".")[2] == far[0])
        return "is an unknown key", f"did you mean {key}?"
    near = difflib.get_close_matches(name, names, 1, cutoff=0.4)
    hint = f"the nearest key is {near[0]}; " if near else ""
    return "is an unknown key", f"{hint}known here: {', '.join(names)}"


def _rule(detail: ErrorDetails) -> str:
    kind, context = detail["type"], (detail.get("ctx") or {})
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        return f"must be {words} {_bound(context[name])}"
    if kind == "value_error":  # a section's own rule
        return str(context["error"])
    if kind in ("literal_error", "enum"):
        return f"must be {context['expected']}"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind == "too_short":
        return f"needs at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "finite_number":
        return "must be a finite number"
    if kind == "int_from_float":
        return "must be a whole number"
    stem = kind.removesuffix("_type").removesuffix("_parsing")
    return f"must be {TYPES[stem]}" if stem in TYPES else detail["msg"][0].lower() + detail["msg"][1:]


def _bound(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else f"{value:g}"


def _hint(kind: str, node: Node | None, detail: ErrorDetails) -> str | None:
    if not isinstance(node, Leaf):
        return None
    value = node.value
    if value is None:
        return _instead_of_null(kind)
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}" if abs(value) < 2**53 else None
    if kind in ("int_type", "float_type") and isinstance(value, str):
        digits = value.replace("_", "")
        return f"write {digits} without quotes or underscores" if _is_finite(digits) else None
    if kind == "bool_type" and str(value).lower() in ("yes", "on", "no", "off", "y", "n", "true", "false"):
        return f"write {'true' if str(value).lower() in ('yes', 'on', 'y', 'true') else 'false'}"
    if kind == "string_type":
        return f'quote it: "{shown(node)}"'
    if kind == "literal_error":
        expected = str((detail.get("ctx") or {}).get("expected", ""))
        near = difflib.get_close_matches(str(value), expected.replace("'", "").replace(" or ", ", ").split(", "), 1)
        return f"did you mean {near[0]}?" if near else None
    return None


def _instead_of_null(kind: str) -> str | None:
    """Nothing behind a key is null in YAML, which is rarely what was meant."""
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "its keys go below it, indented"
    return "give a value, or leave the key out where it has a default"


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
