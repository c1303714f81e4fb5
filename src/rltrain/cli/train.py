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
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="auto|STEP|PATH",
            help="Go on from a saved step: the newest whole one of this run, if there is any; one of it by number; or "
            "that of a path, a run's directory or a saved step's. Another run.name branches off.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and start nothing.")] = False,
) -> None:
    """Train a model as CONFIG says."""
    with exit_codes():
        from rltrain.cli.checking import check, check_flags, check_place

        check_flags(overwrite=overwrite, resume=resume)
        checked = check(config, overrides or [])
        if dry_run:
            from rltrain.cli.probe import probe

            probe(checked, resumed=check_place(checked, overwrite=overwrite, resume=resume))
            typer.echo("the config is valid; nothing was started")
            return
        from rltrain.launch import train as launch_train

        launch_train(checked.args, overwrite=overwrite, resume=resume)
