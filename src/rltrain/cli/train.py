"""`rltrain train`."""

from __future__ import annotations

from typing import Annotated

import typer

from rltrain.cli.arguments import ConfigFile, Overrides
from rltrain.cli.exits import exit_codes


def train(
    config: ConfigFile,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace an earlier run of this name; it is removed once the new one has started."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and start nothing.")] = False,
) -> None:
    """Train a model as CONFIG says."""
    with exit_codes():
        from rltrain.cli.checking import check

        checked = check(config, overrides or [])
        if dry_run:
            from rltrain.cli.probe import probe
            from rltrain.telemetry.run_directory import check_name

            check_name(checked.args, overwrite=overwrite)
            probe(checked)
            typer.echo("the config is valid; nothing was started")
            return
        from rltrain.launch import train as launch_train

        launch_train(checked.args, overwrite=overwrite)
