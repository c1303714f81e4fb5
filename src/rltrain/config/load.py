"""From a YAML file and overrides to `Args`; every problem is told at once, in the user's own keys and places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rltrain.config.absent import without_null_sections
from rltrain.config.errors import Problem, UserError
from rltrain.config.layers import merge_root, read_layers
from rltrain.config.namespace import Args
from rltrain.config.overrides import override_layer
from rltrain.config.paths import with_absolute_paths
from rltrain.config.secrets import secret_problems
from rltrain.config.tree import Config
from rltrain.config.violations import Violations
from rltrain.config.yaml_nodes import Leaf, MapNode, plain


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config together with the text it came from, for messages about what is found out later."""

    args: Args
    root: MapNode

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """The problems with the file, line and value that their keys have; those with a place of their own stay."""
        violations = Violations(self.root, self.args.config_path)
        return [violations.located(problem) for problem in problems]


def load_args(path: Path, overrides: Sequence[str] = ()) -> Args:
    """The config of a file and `key=value` overrides. Raises UserError with every problem of its keys and values."""
    return load(path, overrides).args


def load(path: Path, overrides: Sequence[str] = ()) -> Loaded:
    """As `load_args`, with the places of keys."""
    try:
        path = path.expanduser().absolute()
    except RuntimeError as error:
        raise UserError.single(str(path), "there is no such user's home directory") from error
    merged = merge_root(read_layers(path), override_layer(overrides))
    root = without_null_sections(merged, Config)
    assert isinstance(root, MapNode)
    _add_run_directory(root, path)
    secret, hidden = secret_problems(root)
    root, problems = with_absolute_paths(root)
    violations = Violations(root, path)
    try:
        # JSON, because pydantic's strict mode then takes lists and texts where a section has tuples and paths, and
        # still no text for a number and no number for a text.
        config = Config.model_validate_json(json.dumps(plain(root)), strict=True)
    except ValidationError as error:
        problems += violations.problems(error, without=hidden)
        config = None
    except (ValueError, RecursionError) as error:
        raise UserError.single(str(path), f"can't be read: {error}") from error
    if problems or secret or config is None:
        raise UserError([*secret, *problems])
    return Loaded(Args(config, config_path=path), root)


def _add_run_directory(root: MapNode, path: Path) -> None:
    """The default of the one path that has one counts from the config file too."""
    run = root.items.get("run")
    if isinstance(run, MapNode) and "directory" not in run.items:
        default = str(path.parent / "runs")
        run.items["directory"] = Leaf(run.place, default, default)
