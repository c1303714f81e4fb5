"""`rltrain doctor`: what is installed, what is missing and the command that mends it."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Also import torch, Ray, Megatron and vLLM (takes a while).")
    ] = False,
) -> None:
    """Show versions and devices, what is missing, and the command that mends it.

    Exits with 1 if something must be mended.
    """
    from pathlib import Path

    from rich.console import Console

    from rltrain.doctor.finding import Level
    from rltrain.doctor.imports import check_imports
    from rltrain.doctor.machine import check_machine, gpu_names
    from rltrain.doctor.packages import check_packages, installed_distributions
    from rltrain.doctor.report import print_report

    gpus = gpu_names()
    findings = [*check_machine(gpus, directory=Path.cwd())]
    findings += check_packages(installed_distributions(), has_gpu=bool(gpus))
    if deep:
        findings += check_imports()
    print_report(findings, console=Console())
    if any(finding.level is Level.MEND for finding in findings):
        raise typer.Exit(1)
