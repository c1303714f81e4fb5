"""A model's files apart from its weights: config and tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

CONFIG = "config.json"
PATTERNS = (
    CONFIG,
    "generation_config.json",
    "chat_template.*",
    "token*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
)


def carry_files(source: Path, target: Path) -> list[str]:
    """Copies them byte for byte into the directory `target`; their names. Raises OSError."""
    names = {file.name for pattern in PATTERNS for file in source.glob(pattern) if file.is_file()}
    for name in names:
        shutil.copyfile(source / name, target / name)
    return sorted(names)
