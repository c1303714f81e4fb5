"""YAML text to a tree of values that know their places; scalars as in YAML 1.2: `1e-6` is a number, `on` a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from rltrain.config.errors import Problem, UserError
from rltrain.config.readable import unreadable

MOST_NODES = 100_000
"""Values in one file, aliases counted each time: more is a mistake or an attack."""
LARGEST_FILE = 16 * 2**20
"""Bytes."""
LONGEST_INTEGER = 1000
"""Characters; Python converts no more than 4300 digits."""
PLAIN = "plain"
TEXT = "tag:yaml.org,2002:str"

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
SURROGATE = re.compile(r"[\ud800-\udfff]")
LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Place:
    where: str
    """`file:line:column`, or `command line`."""
    directory: Path
    """What relative paths written here count from; absolute."""


@dataclass(frozen=True, slots=True)
class Leaf:
    place: Place
    value: str | int | float | bool | None
    text: str
    """As the user wrote it."""


@dataclass(frozen=True, slots=True)
class ListNode:
    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    place: Place
    items: dict[str, Node]
    key_places: dict[str, Place] = field(default_factory=dict[str, "Place"])
    partial: bool = False
    """Made from dotted overrides: its keys go on top of what is there, and digits count the items of a list."""


Node: TypeAlias = "Leaf | ListNode | MapNode"


def plain(node: Node) -> Any:
    """The tree's values without their places."""
    if isinstance(node, MapNode):
        return {key: plain(value) for key, value in node.items.items()}
    return [plain(value) for value in node.items] if isinstance(node, ListNode) else node.value


def shown(node: Node) -> str:
    """The value for a message, on one line and not too long."""
    if isinstance(node, Leaf):
        text = _leaf_text(node)
    else:
        text = "a mapping" if isinstance(node, MapNode) else f"a list of {len(node.items)}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _leaf_text(node: Leaf) -> str:
    """As written, but for what nobody would see: nothing at all is null, and blank texts keep their quotes."""
    text = " ".join(node.text.split())
    return text or ("null" if node.value is None else f'"{node.text}"')


def read_yaml(path: Path) -> MapNode:
    """The mapping that a file holds. Raises UserError with all repeated keys, or where it is no such file."""
    if reason := unreadable(path):
        raise UserError.single(str(path), reason)
    if path.stat().st_size > LARGEST_FILE:
        raise UserError.single(str(path), f"is no config: it has more than {LARGEST_FILE >> 20} MiB")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError.single(str(path), f"must be UTF-8, but byte {error.start} isn't") from error
    node = _Reading(text, name=str(path), directory=path.absolute().parent).root()
    if node is None or (isinstance(node, Leaf) and node.value is None):
        raise UserError.single(str(path), "is empty", hint="a config is a mapping of sections, e.g. `run: {steps: 10}`")
    if not isinstance(node, MapNode):
        kind = "a list" if isinstance(node, ListNode) else "one value"
        raise UserError.single(str(path), f"must be a mapping of sections, not {kind}", place=node.place.where)
    return node


def read_value(text: str, *, key: str, place: Place) -> Node:
    """An override's value, by the same rules as in a file. Raises UserError."""
    try:
        node = _Reading(text, name="", directory=place.directory, place=place).root()
    except UserError as error:
        rule = f"is not YAML: {error.problems[0].rule}"
        raise UserError.single(key, rule, place=place.where, hint=error.problems[0].hint) from None
    return Leaf(place, None, text) if node is None else node


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without its YAML 1.1 scalars."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return PLAIN
        return cast("str", super().resolve(kind, value, implicit))  # pyright: ignore[reportUnknownMemberType]


class _Reading:
    def __init__(self, text: str, *, name: str, directory: Path, place: Place | None = None) -> None:
        self._text = text
        self._name = name
        self._directory = directory
        self._place = place
        self._problems: list[Problem] = []
        self._num_nodes = 0
        self._open: set[int] = set()

    def root(self) -> Node | None:
        try:
            composed = _Loader(self._text).get_single_node()
            node = None if composed is None else self._node(composed)
        except yaml.MarkedYAMLError as error:
            place = None if error.problem_mark is None else self._at(error.problem_mark).where
            rule = " ".join(text for text in (error.context, error.problem) if text)
            hint = "indent with spaces, not tabs" if "'\\t'" in rule else error.note
            raise UserError.single(self._name, rule or "is not YAML", place=place, hint=hint) from None
        except yaml.YAMLError as error:
            raise UserError.single(self._name, " ".join(str(error).split())) from None
        except RecursionError:
            raise UserError.single(self._name, "is nested too deeply") from None
        if self._problems:
            raise UserError(self._problems)
        return node

    def _at(self, mark: Any) -> Place:
        return self._place or Place(f"{self._name}:{mark.line + 1}:{mark.column + 1}", self._directory)

    def _refuse(self, node: Any, key: str, rule: str, hint: str | None = None) -> None:
        self._problems.append(Problem(key=key, rule=rule, place=self._at(node.start_mark).where, hint=hint))

    def _node(self, node: Any) -> Node:
        self._num_nodes += 1
        if self._num_nodes > MOST_NODES:
            raise UserError.single(self._name, f"has more than {MOST_NODES} values, aliases included")
        if id(node) in self._open:
            raise UserError.single(self._name, "an alias stands inside its own anchor")
        if isinstance(node, yaml.ScalarNode):
            return self._leaf(node)
        self._open.add(id(node))
        made = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._sequence(node)
        self._open.discard(id(node))
        return made

    def _leaf(self, node: Any) -> Leaf:
        value: Any = node.value
        if node.tag == PLAIN:
            if LEADING_ZERO.fullmatch(value):
                self._refuse(node, value, "a number can't start with 0", "drop the zero, or quote it as text")
            value = scalar(value)
        elif node.tag != TEXT:
            self._refuse(node, node.tag, "tags are not supported")
        if isinstance(value, str) and SURROGATE.search(value):
            self._refuse(
                node, ascii(value), "holds half a surrogate pair (or bytes that aren't UTF-8), which is no text"
            )
        return Leaf(self._at(node.start_mark), value, node.value)

    def _sequence(self, node: Any) -> ListNode:
        if not node.tag.startswith("tag:yaml.org,2002:seq"):
            self._refuse(node, node.tag, "tags are not supported")
        return ListNode(self._at(node.start_mark), tuple(self._node(item) for item in node.value))

    def _mapping(self, node: Any) -> MapNode:
        if not node.tag.startswith("tag:yaml.org,2002:map"):
            self._refuse(node, node.tag, "tags are not supported")
        made = MapNode(self._at(node.start_mark), {})
        for key, value in self._keys(node):
            place = self._at(key.start_mark)
            if key.value in made.items:
                first = made.key_places[key.value].where
                self._refuse(key, key.value, f"is given twice (first at {first})", "keep one of them")
                continue
            made.items[key.value] = self._node(value)
            made.key_places[key.value] = place
        return made

    def _keys(self, node: Any) -> Iterator[tuple[Any, Any]]:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, "a key", "must be text")
            elif SURROGATE.search(key.value):
                self._refuse(key, ascii(key.value), "a key must be text, and holds half a surrogate pair")
            elif key.tag == PLAIN and key.value == "<<":
                self._refuse(key, "<<", "merge keys are not supported", "use `base: other.yaml`, or repeat the keys")
            elif key.tag == PLAIN and not isinstance(scalar(key.value), str):
                self._refuse(key, key.value or "a key", "a key must be text", "quote it")
            else:
                yield key, value


def scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar by YAML 1.2's core schema."""
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if INTEGER.fullmatch(text) and len(text) <= LONGEST_INTEGER:
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "", 1)) if SPECIAL_FLOAT.fullmatch(text) else text
