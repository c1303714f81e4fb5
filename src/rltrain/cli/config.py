"""`rltrain config show|schema|diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rltrain.cli.arguments import ConfigFile, Overrides
from rltrain.cli.exits import exit_codes

app = typer.Typer(no_args_is_help=True, help="Show, explain and compare configs.")


@app.command()
def show(config: ConfigFile, overrides: Overrides = None) -> None:
    """Print the resolved config: bases and overrides merged, defaults filled in, paths absolute, secrets redacted."""
    with exit_codes():
        from rltrain.config.dump import dump_yaml
        from rltrain.config.load import load_args

        typer.echo(dump_yaml(load_args(config, overrides or [])), nl=False)


@app.command()
def schema(
    key: Annotated[
        str | None, typer.Option("--key", help="Explain this key and those below it, e.g. actor.optimizer.")
    ] = None,
) -> None:
    """Print the JSON schema of a config, or a table of keys with --key."""
    with exit_codes():
        from rltrain.config.schema import json_schema, rows

        if key is None:
            typer.echo(json_schema())
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table("key", "value", "default", "meaning")
        for row in rows(key):
            table.add_row(*(Text(cell) for cell in (row.key, row.type, row.default, row.meaning)))
        Console().print(table)


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="YAML file.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B", help="YAML file.", show_default=False)],
) -> None:
    """Print the keys whose resolved values differ between A and B."""
    with exit_codes():
        from rltrain.config.dump import differences
        from rltrain.config.load import load_args

        for key, left, right in differences(load_args(before), load_args(after)):
            typer.echo(f"{key}: {left if left is not None else '(none)'} -> {right if right is not None else '(none)'}")
