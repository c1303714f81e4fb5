"""Arguments that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

ConfigFile: TypeAlias = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file.", show_default=False)]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Overrides, e.g. rollout.temperature=0.8.", show_default=False),
]
