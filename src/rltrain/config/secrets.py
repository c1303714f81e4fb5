"""Keys of services stay out of configs: a config is copied, logged and shared, the environment isn't."""

from __future__ import annotations

from rltrain.config.errors import Problem
from rltrain.config.redact import REDACTED, is_secret_key
from rltrain.config.yaml_nodes import Leaf, ListNode, MapNode, Node

RULE = "keys and passwords come from the environment, never from a config"
BARE = frozenset({"key", "token"})
"""Names that are secret with nothing in front, e.g. `telemetry.wandb.key`."""


def secret_problems(root: MapNode) -> tuple[list[Problem], frozenset[str]]:
    """A problem for each secret-like key with a value, which isn't shown; and those keys' dotted paths."""
    problems: list[Problem] = []
    _search(root, "", problems)
    return problems, frozenset(problem.key for problem in problems)


def _search(node: Node, path: str, problems: list[Problem]) -> None:
    if isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            _search(item, f"{path}[{index}]", problems)
    if not isinstance(node, MapNode):
        return
    for name, value in node.items.items():
        key = f"{path}.{name}" if path else name
        if (is_secret_key(name) or name.lower() in BARE) and not _is_harmless(name, value):
            place = node.key_places.get(name, value.place).where
            problems.append(Problem(key=key, rule=RULE, value=REDACTED, place=place, hint=_hint(path, name)))
        else:
            _search(value, key, problems)


def _is_harmless(name: str, value: Node) -> bool:
    """Null holds nothing, and a number of tokens is no account's token (`max_token: 7`, a misspelt `max_tokens`)."""
    if not isinstance(value, Leaf) or isinstance(value.value, str):
        return False
    return value.value is None or name.lower().endswith("token")


def _hint(path: str, name: str) -> str:
    if path == "cluster.env":
        return f"export {name} and write `{name}: null`, which passes the caller's own value on"
    if "wandb" in path:
        return "set WANDB_API_KEY or run `wandb login`"
    return "remove it here and set it in the environment"
