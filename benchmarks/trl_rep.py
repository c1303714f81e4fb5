"""The quick start's task in TRL with vLLM colocated: the other half of `cpu_step.py`, run in a venv of its own.

Usage: python trl_rep.py MODEL_DIRECTORY DATA.jsonl STEPS     (last line: one JSON object)

The settings are those of configs/quickstart.yaml: 32 prompts x 8 samples, 4 new tokens, temperature 1, float32, AdamW
with lr 5e-4 and betas 0.9 and 0.99, no weight decay, gradient norm 1.0, clip 0.2 and 0.28, no KL, one update a rollout.
Two things are set for TRL that it has no options for: vLLM computes in float32 too, and doesn't pack its weights.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.update(  # read when the libraries below are imported
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    TRL_EXPERIMENTAL_SILENCE="1",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # in this process, so that its CPU time is counted
    VLLM_LOGGING_LEVEL="WARNING",
)

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation
from vllm import _custom_ops as vllm_ops

PROMPTS, SAMPLES, NEW_TOKENS = 32, 8, 4


class StepTimes(TrainerCallback):
    """Wall and CPU seconds (all threads) from one step's end to the next's."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))


def main(model_directory: Path, data: Path, steps: int) -> None:
    torch.set_num_threads(1)
    vllm_ops._supports_onednn = False  # packs weights where it can, and TRL's sync can't write to packed ones
    vllm_generation.LLM = partial(vllm_generation.LLM, dtype="float32")  # left to TRL it is bfloat16, which is slower
    tokenizer = AutoTokenizer.from_pretrained(model_directory)
    torch.manual_seed(0)
    start = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_directory), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as work:
        start.save_pretrained(work)
        tokenizer.save_pretrained(work)
        times = StepTimes()
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(work, dtype=torch.float32),
            args=settings(work, steps),
            train_dataset=prompts(data, PROMPTS * (steps + 1)),
            processing_class=tokenizer,
            reward_funcs=digits,
            callbacks=[times],
        )
        trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    walls, cpus = zip(*times.ends, strict=True)
    print(json.dumps({"wall_s": differences(walls), "cpu_s": differences(cpus), "reward": rewards}))


def settings(directory: str, steps: int) -> GRPOConfig:
    return GRPOConfig(
        output_dir=directory,
        use_cpu=True,
        bf16=False,
        fp16=False,
        per_device_train_batch_size=PROMPTS * SAMPLES,
        gradient_accumulation_steps=1,
        num_generations=SAMPLES,
        max_completion_length=NEW_TOKENS,
        temperature=1.0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="bnpo",
        scale_rewards="group",
        num_iterations=1,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        warmup_steps=0,
        adam_beta1=0.9,
        adam_beta2=0.99,
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_steps=steps,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.1,
        vllm_max_model_length=64,
        dataloader_num_workers=0,
        disable_tqdm=True,
    )


def prompts(data: Path, number: int) -> Dataset:
    """Rows drawn with repeats."""
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").split("\n") if line]
    return Dataset.from_list(random.Random(1).choices(rows, k=number))


def digits(completions: list[str], label: list[str], **_: Any) -> list[float]:
    """Share of the label's characters that the response has at the same place."""
    pairs = zip(completions, label, strict=True)
    return [sum(a == b for a, b in zip(text, right, strict=False)) / len(right) for text, right in pairs]


def differences(values: tuple[float, ...]) -> list[float]:
    return [after - before for before, after in pairwise(values)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
