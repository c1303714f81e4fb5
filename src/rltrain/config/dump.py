"""A config as YAML again, as flat keys, and the difference of two; without secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

import yaml

from rltrain.config.namespace import Args
from rltrain.config.redact import redacted, secret_values
from rltrain.config.yaml_nodes import scalar


class _Dumper(yaml.SafeDumper):
    """Writes what `load.py` reads back: texts that look like numbers or truth values are quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def resolved(args: Args) -> dict[str, Any]:
    """Every key with its value, defaults included, as JSON-like values; secrets are redacted."""
    return redacted(args.config().model_dump(mode="json"), secrets=secret_values(os.environ))


def dump_yaml(args: Args) -> str:
    """The resolved config as YAML that loads to the same config."""
    return yaml.dump(resolved(args), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def flat(tree: Mapping[str, Any]) -> dict[str, str]:
    """Values as JSON by dotted key."""
    return dict(_flat(tree, ""))


def differences(before: Args, after: Args) -> list[tuple[str, str | None, str | None]]:
    """Keys whose values differ, with both values; None where one config has no such key."""
    left, right = flat(resolved(before)), flat(resolved(after))
    keys = dict.fromkeys([*left, *right])
    return [(key, left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key)]


def _flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, below in cast("dict[str, Any]", value).items():
            yield from _flat(below, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in cast("list[Any]", value)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _flat(item, f"{key}[{index}]")
    else:
        yield key, json.dumps(value, ensure_ascii=False)


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)  # always finite; YAML 1.1 readers want a dot before the exponent
    return yaml.ScalarNode("tag:yaml.org,2002:float", text if "." in text else text.replace("e", ".0e"))


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML quotes what YAML 1.1 would misread; what only 1.2 reads as a number (`1e-6`) is quoted here.
    style = '"' if not isinstance(scalar(value), str) or value[:1].isdigit() else None
    return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _text)
