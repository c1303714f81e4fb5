"""Time of a quick-start step, rltrain against TRL 1.16 with vLLM colocated: same task, model, shapes and versions.

Usage: python benchmarks/cpu_step.py [--steps 40] [--warmup 5] [--rounds 2] [--only rltrain|trl]

Each computes with one thread. The two run in turn, `--rounds` times each. The last line is one JSON object: median
wall and CPU seconds a step of both, and `ratio_wall` and `ratio_cpu` (ours over TRL's). Wall seconds a step are those
between two step ends. CPU seconds are those of all processes of a run in the same interval, Ray's own included. Run it
on an idle machine.

On the first call TRL is installed in `build/trl-venv`, which sees the packages of the environment that runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import site
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
TRL_VENV = ROOT / "build" / "trl-venv"
TRL_PACKAGES = ("trl==1.16.0", "accelerate==1.15.0", "datasets==5.2.0")
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
POLL_S = 0.01
TIMEOUT_S = 900.0


@dataclass
class Steps:
    """Seconds of each step after warm-up, over all rounds."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    reward: float = 0.0
    """Of the last step: shows that both learn."""

    def add(self, other: Steps) -> None:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.reward = other.reward


class ProcessTree:
    """CPU seconds of a process and everything below it; those of processes that have ended stay counted."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seconds: dict[tuple[int, float], float] = {}

    def cpu_s(self) -> float:
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._seconds[process.pid, process.create_time()] = times.user + times.system
        return sum(self._seconds.values())


def run_rltrain(steps: int, *, warmup: int) -> Steps:
    with tempfile.TemporaryDirectory() as work:
        name = "cpu-step"
        overrides = [f"run.steps={steps}", f"run.directory={work}", f"run.name={name}", f"eval.every={steps}"]
        command = [str(Path(sys.executable).with_name("rltrain")), "train", str(ROOT / "configs" / "quickstart.yaml")]
        with (Path(work) / "output").open("w+b") as output:
            process = subprocess.Popen(
                [*command, *overrides, "eval.at_start=false"], stdout=output, stderr=output, env=os.environ | THREADS
            )
            ends = watch(process, Path(work) / name / "metrics.jsonl")
            if process.returncode != 0:
                output.seek(0)
                sys.exit(f"rltrain failed:\n{output.read().decode(errors='replace')[-4000:]}")
        lines = (Path(work) / name / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        rows: list[dict[str, Any]] = [row for row in map(json.loads, filter(None, lines)) if row["step"] > 0]
    cpu_at = dict(ends)
    last = rows[-1]["step"]  # evaluates
    measured = [row for row in rows if warmup < row["step"] < last]
    cpu_s = [
        cpu_at[row["step"]] - cpu_at[row["step"] - 1]
        for row in measured
        if row["step"] in cpu_at and row["step"] - 1 in cpu_at
    ]
    return Steps([row["time/step_s"] for row in measured], cpu_s, rows[-1]["reward/mean"])


def watch(process: subprocess.Popen[bytes], metrics: Path) -> list[tuple[int, float]]:
    """Waits for the process; the CPU seconds of its tree at the end of each step, as the file grows by a line."""
    tree = ProcessTree(process.pid)
    ends: list[tuple[int, float]] = []
    size, deadline = 0, time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.terminate()
            process.wait()
            sys.exit(f"rltrain took more than {TIMEOUT_S:.0f} s")
        now = metrics.stat().st_size if metrics.exists() else 0
        if now != size:
            size, cpu_s = now, tree.cpu_s()
            ends.append(
                (json.loads(metrics.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[2])["step"], cpu_s)
            )
        time.sleep(POLL_S)
    return ends


def run_trl(steps: int, *, warmup: int) -> Steps:
    model, data = ROOT / "examples" / "tiny-qwen3", ROOT / "examples" / "rep" / "train.jsonl"
    command = [TRL_VENV / "bin" / "python", ROOT / "benchmarks" / "trl_rep.py", model, data, str(steps)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | THREADS, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        sys.exit(f"TRL failed:\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    return Steps(found["wall_s"][warmup:], found["cpu_s"][warmup:], found["reward"][-1])


def ensure_trl() -> None:
    """TRL's own venv, on top of this environment's packages; made whole or not at all."""
    marker = TRL_VENV / "ready"
    if marker.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", TRL_VENV], check=True)
    python = TRL_VENV / "bin" / "python"
    command = [python, "-c", "import site; print(site.getsitepackages()[0])"]
    packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    (packages / "main.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *TRL_PACKAGES], check=True)
    marker.touch()


def summary(results: dict[str, Steps]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name, steps in results.items():
        report[f"{name}_wall_s"] = round(statistics.median(steps.wall_s), 4)
        report[f"{name}_cpu_s"] = round(statistics.median(steps.cpu_s), 4)
        report[f"{name}_steps"] = len(steps.wall_s)
        report[f"{name}_last_reward"] = round(steps.reward, 3)
    if len(results) == 2:
        report["ratio_cpu"] = round(report["rltrain_cpu_s"] / report["trl_cpu_s"], 3)
        report["ratio_wall"] = round(report["rltrain_wall_s"] / report["trl_wall_s"], 3)
    return report | {"load": os.getloadavg()[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="training steps of a run")
    parser.add_argument("--warmup", type=int, default=5, help="first steps that are not counted")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each")
    parser.add_argument("--only", choices=["rltrain", "trl"], help="run one of the two")
    options = parser.parse_args(arguments)
    if options.steps < options.warmup + 3:
        parser.error("--steps must be at least --warmup + 3")
    runners = {"rltrain": run_rltrain, "trl": run_trl}
    names = [options.only] if options.only else list(runners)
    if "trl" in names:
        ensure_trl()
    results = {name: Steps() for name in names}
    for number in range(options.rounds):
        for name in names:
            results[name].add(runners[name](options.steps, warmup=options.warmup))
            print(
                f"round {number + 1}, {name}: median step {statistics.median(results[name].wall_s):.3f} s", flush=True
            )
    print(json.dumps(summary(results)))


if __name__ == "__main__":
    main()
