"""Metrics to Weights & Biases, where the `wandb` extra is installed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rltrain.config.errors import UserError
from rltrain.config.namespace import Args
from rltrain.config.redact import redacted, secret_values
from rltrain.telemetry.atomic import write_text
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.telemetry.wandb_check import check_wandb, wandb_mode


class WandbSink:
    """One wandb run, whichever process of ours goes on with it.

    The key comes from wandb's own environment or login; the config is sent redacted. Console output,
    code, the command line and machine facts are not collected.
    """

    def __init__(self, args: Args, directory: RunDirectory) -> None:
        config = args.telemetry.wandb
        assert config is not None, "only made where the config asks for it"
        check_wandb(config)
        wandb: Any = import_module("wandb")
        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            silent=True,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        tree = redacted(args.config().model_dump(mode="json"), secrets=secret_values(os.environ))
        try:
            self._run: Any = wandb.init(
                project=config.project,
                entity=config.entity,
                name=directory.name,
                id=_run_id(directory.wandb_id),
                resume="allow",
                mode=wandb_mode(config),
                dir=str(directory.path),
                config=tree,
                settings=settings,
            )
        except wandb.errors.Error as error:
            hint = "set WANDB_API_KEY or run `wandb login`, or set telemetry.wandb.mode to offline"
            raise UserError.single("telemetry.wandb", f"wandb can't start: {error}", hint=hint) from error

    @property
    def id(self) -> str:
        """What wandb knows the run by."""
        return str(self._run.id)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def rewind(self, step: int) -> None:
        """wandb keeps what it has of a step and takes no second one."""

    def close(self) -> None:
        self._run.finish()


def _run_id(path: Path) -> str:
    """The same for every process of a run."""
    if not path.exists():
        write_text(path, f"{uuid.uuid4().hex}\n")
    return path.read_text(encoding="utf-8").strip()
