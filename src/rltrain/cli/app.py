"""The command line. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

from rltrain import __version__
from rltrain.cli import config
from rltrain.cli.doctor import doctor
from rltrain.cli.train import train
from rltrain.cli.validate import validate

app = typer.Typer(
    name="rltrain",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # they may hold secrets
    help="Train language models with reinforcement learning.",
)
app.command()(train)
app.command()(validate)
app.add_typer(config.app, name="config")
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rltrain {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train language models with reinforcement learning."""


def main() -> None:
    """The `rltrain` command."""
    app()
