"""`a.b=c` arguments as a layer of their own, on top of every file; order matters only where a key is given twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rltrain.config.errors import Problem, UserError
from rltrain.config.yaml_nodes import MapNode, Node, Place, read_value

KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
DEEPEST = 50
"""Levels of an overridden key; every pass over a config calls itself for each."""


def override_layer(overrides: Iterable[str]) -> MapNode:
    """The layer to put on top. Relative paths count from the working directory. Raises UserError with all problems."""
    place = Place("command line", Path.cwd())
    root = MapNode(place, {}, partial=True)
    problems: list[Problem] = []
    for argument in overrides:
        key, equals, text = argument.partition("=")
        if not equals or not KEY.fullmatch(key):
            rule = "an override is written key=value, e.g. rollout.temperature=0.8"
            problems.append(Problem(key=key, rule=rule, place=place.where))
            continue
        if key.count(".") >= DEEPEST:
            problems.append(Problem(key=key[:80] + "...", rule="is nested too deeply", place=place.where))
            continue
        try:
            _put(root, key.split("."), read_value(text, key=key, place=place))
        except UserError as error:
            problems += [replace(problem, key=key) for problem in error.problems]
    if problems:
        raise UserError(problems)
    return root


def _put(node: MapNode, path: list[str], value: Node) -> None:
    for name in path[:-1]:
        below = node.items.get(name)
        if not isinstance(below, MapNode):
            below = MapNode(node.place, {}, partial=True)
            node.items[name] = below
        node = below
    node.items[path[-1]] = value
