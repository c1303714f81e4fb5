"""Model directories of known sizes without weights, and prompts, for benchmarks with random weights.

Usage: python benchmarks/shapes.py TOKENIZER_DIRECTORY OUTPUT_DIRECTORY
Writes OUTPUT/<name> for each of SHAPES (config.json and the tokenizer's files) and OUTPUT/sums.jsonl.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "initializer_range": 0.02,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "dtype": "bfloat16",
}
SIZES = {
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "4b": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
}
"""Qwen3's; `-v49k` have no more ids than SmolLM2's tokenizer, so that every sampled token can be trained on."""
SHAPES = {
    **{f"qwen3-{name}": {**QWEN3, **size, "vocab_size": 151_936} for name, size in SIZES.items()},
    **{f"qwen3-{name}-v49k": {**QWEN3, **size, "vocab_size": 49_152} for name, size in SIZES.items()},
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def write_shapes(tokenizer: Path, output: Path) -> None:
    for name, config in SHAPES.items():
        directory = output / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for file in TOKENIZER_FILES:
            if (tokenizer / file).is_file():
                shutil.copyfile(tokenizer / file, directory / file)


def write_prompts(path: Path, *, rows: int) -> None:
    """Sums of 24 numbers: about 150 tokens each with a chat template."""
    drawn = random.Random(0)
    lines: list[str] = []
    for _ in range(rows):
        numbers = [drawn.randrange(1000) for _ in range(24)]
        prompt = "Compute step by step: " + " + ".join(map(str, numbers))
        lines.append(json.dumps({"prompt": prompt, "label": str(sum(numbers))}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[2])
    write_shapes(Path(sys.argv[1]), target)
    write_prompts(target / "sums.jsonl", rows=1024)
