"""What `rltrain validate` shows."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rltrain.cli.probe import Probe
from rltrain.config.errors import UserError
from rltrain.config.namespace import Args
from rltrain.telemetry.run_directory import check_name
from rltrain.trainer.estimate import Estimate
from rltrain.trainer.gpu_memory import GpuPlan


def print_estimate(found: Estimate, *, console: Console) -> None:
    gpus = f", {found.num_gpus} GPUs" if found.num_gpus else ""
    split = f" on {found.tensor_parallel} GPUs each" if found.tensor_parallel > 1 else ""
    memory = [f"{what} {size(number)}" for what, number in found.rank_memory.items()]
    cache = "vLLM's share of the GPU" if found.cache_bytes is None else size(found.cache_bytes)
    rows = {
        "a step": f"{found.prompts_per_step} prompts, {found.samples_per_step} samples, "
        f"at most {found.tokens_per_step:,} tokens",
        "optimizer steps": f"{found.updates_per_step} a step, {found.updates} in all",
        "micro-batches": f"of {found.micro_batch_tokens:,} tokens; at most {found.micro_batches} for a rank's "
        f"{found.samples_per_rank} samples",
        "layout": f"trainers: {found.num_trainers}, engines: {found.num_engines}{split}, on {found.device}{gpus}",
        "parameters": f"{found.num_parameters:,}",
        "memory a rank": ", ".join(memory) + f": {size(sum(found.rank_memory.values()))}, and activations",
        "KV cache an engine": f"{cache} ({size(found.cache_bytes_per_token)} a token, "
        f"{found.context_length:,} tokens a sequence at most)",
        "export on disk": size(found.export_bytes),
        "saved step on disk": size(found.saved_bytes),
    }
    _print(rows, console=console)


def print_gpu_plan(plan: GpuPlan, *, console: Console) -> None:
    """How trainer and engines share a GPU."""
    trainer = [f"{what} {size(number)}" for what, number in plan.trainer.items()]
    engine = [f"{what} {size(number)}" for what, number in plan.engine.items()]
    cache = f"KV cache {size(plan.cache_bytes)} of {size(plan.wanted_cache_bytes)} that a step's samples can use"
    rows = {
        "a shared GPU": f"{size(plan.total_bytes)}, {plan.engines_per_gpu} engine(s) on it"
        + (", asleep while the trainer works" if plan.sleeps else ""),
        "of it the trainer": f"{', '.join(trainer)}; at work activations {size(plan.activations_bytes)}",
        "of it an engine": f"{', '.join(engine)}, {cache}",
    }
    _print(rows, console=console)


def print_probe(found: Probe, *, console: Console) -> None:
    rows = {f"rows of {key}": str(report) for key, report in found.reports.items()}
    rows["first prompt"] = repr(found.text)
    rows["its tokens"] = str(len(found.prompt.token_ids))
    rows["its label"] = "none" if found.prompt.label is None else repr(found.prompt.label)
    for trial in found.trials:
        rows[f"reward of {trial.response!r}"] = (
            f"{trial.result.reward:g}" if trial.result.reward is not None else "none"
        )
    _print(rows, console=console)


def print_run_directory(args: Args, *, console: Console) -> None:
    """Where the run will be, and whether its name is taken: then `train` refuses, but the config is as good as ever."""
    text = str(args.run.directory / (args.run.name or "<config>-<UTC time>"))
    try:
        check_name(args, overwrite=False)
    except UserError as error:
        text = f"{error.problems[0].rule} ({error.problems[0].hint})"
    _print({"run": text}, console=console)


def size(number: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1."""
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.3g} {units[0]}" if value < 1000 else f"{value:.0f} {units[0]}"


def _print(rows: dict[str, str], *, console: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(Text(name), Text(text))
    console.print(table)
