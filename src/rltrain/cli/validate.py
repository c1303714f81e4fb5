"""`rltrain validate`."""

from __future__ import annotations

from rltrain.cli.arguments import ConfigFile, Overrides
from rltrain.cli.exits import exit_codes


def validate(config: ConfigFile, overrides: Overrides = None) -> None:
    """Check CONFIG, its data and rewards, and show what follows from it. Starts no training."""
    with exit_codes():
        from rich.console import Console

        from rltrain.cli.checking import check
        from rltrain.cli.figures import print_estimate, print_gpu_plan, print_probe, print_run_directory
        from rltrain.cli.probe import probe
        from rltrain.trainer.estimate import estimate
        from rltrain.trainer.gpu_memory import plan_gpu

        checked = check(config, overrides or [])
        found = probe(checked)
        console = Console()
        print_estimate(estimate(checked.args, checked.spec, checked.machine), console=console)
        plan = plan_gpu(checked.args, checked.spec, checked.machine)
        if plan is not None:
            print_gpu_plan(plan, console=console)
        print_probe(found, console=console)
        print_run_directory(checked.args, console=console)
