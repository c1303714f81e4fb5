"""Time of a step while an earlier one is written to disk, against steps without that, within one run.

Usage: python benchmarks/save_step.py [--steps 24] [--every 6]

A model of SmolLM2-135M's shape with random float32 weights; a saved step is 1.6 GB. The last line is one JSON object:
median seconds of steps of both kinds, `ratio` (while writing over else, without the copy), `copy_s` (the part of a save
that training waits for) and `writing_steps`. A step counts as one while writing if `.step_N.partial` was there at any
moment of it after its own copy. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHAPE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "initializer_range": 0.04,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "eos_token_id": 2,
    "dtype": "float32",
}
TOKENIZER = ROOT / "examples" / "tiny-qwen3"
POLL_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        shutil.copytree(TOKENIZER, model)
        name_all_ids(model / "tokenizer.json")
        (model / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
        run = Path(folder) / "run"
        writing = watch(command(model, run, steps=options.steps, every=options.every), run)
        print(json.dumps(compared(read_steps(run), writing)))


def name_all_ids(path: Path) -> None:
    """Gives each of the model's ids a token, so that every sample can be trained on."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    used = {*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])}
    tokenizer["model"]["vocab"] |= {
        f"<{number}>": number for number in range(SHAPE["vocab_size"]) if number not in used
    }
    path.write_text(json.dumps(tokenizer), encoding="utf-8")


def command(model: Path, run: Path, *, steps: int, every: int) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from rltrain.cli.app import main; main()",
        "train",
        str(ROOT / "configs" / "quickstart.yaml"),
        f"run={{directory: {run.parent}, name: {run.name}, steps: {steps}}}",
        f"actor.model.path={model}",
        "rollout.prompts_per_step=8",
        "rollout.samples_per_prompt=4",
        f"checkpoint={{every: {every}, keep_last: 1, export_final: false}}",
        "eval=null",
    ]


def watch(arguments: list[str], run: Path) -> set[int]:
    """Runs it; the steps in which an earlier one was being written."""
    writing: set[int] = set()
    process = subprocess.Popen(arguments)
    try:
        while process.poll() is None:
            step = len(read_steps(run)) + 1
            partials = [path.name for path in (run / "checkpoints").glob(".step_*.partial")]
            if any(int(name.split("_")[1].split(".")[0]) < step for name in partials):
                writing.add(step)
            time.sleep(POLL_S)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise SystemExit(f"the run ended with {process.returncode}")
    return writing


def read_steps(run: Path) -> list[dict[str, Any]]:
    """Lines of the steps from 1 on."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for text in lines if (line := json.loads(text))["step"] > 0]


def compared(steps: list[dict[str, Any]], writing: set[int]) -> dict[str, Any]:
    measured = [line for line in steps if line["step"] > 2]  # the first ones compile
    seconds = {
        kind: [line["time/step_s"] - line["time/save_s"] for line in measured if (line["step"] in writing) is kind]
        for kind in (True, False)
    }
    copies = [line["time/save_s"] for line in measured if line["time/save_s"] > 0.01]
    return {
        "while_writing_s": round(median(seconds[True]), 4),
        "else_s": round(median(seconds[False]), 4),
        "ratio": round(median(seconds[True]) / median(seconds[False]), 3),
        "copy_s": round(median(copies), 4),
        "writing_steps": len(seconds[True]),
        "other_steps": len(seconds[False]),
    }


if __name__ == "__main__":
    main()
