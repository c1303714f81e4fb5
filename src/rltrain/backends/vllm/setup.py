"""What an engine is made from. The driver imports this module: it loads neither torch nor vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    model_path: Path
    dtype: str
    device: str
    """`cpu` or `cuda`."""
    random_init: bool
    """The first sync brings the weights; none are read from `model_path`."""
    context_length: int
    kv_cache_bytes: int | None
    max_sequences: int
    """Most sequences that are generated at once."""
    tensor_parallel: int
    vocab_limit: int
    """Ids from here on have no token and must not reach a trained sample."""
    seed: int
    deterministic: bool
    gpu_share: float | None = None
    """Share of the GPU's memory that must be free at the start, where others use it as well."""
    sleeps: bool = False
    """Gives its GPU memory up between a rollout and the sync that follows."""
    stop_texts: bool = False
    """Requests may carry stop texts: the engine then loads the tokenizer."""
    arguments: Mapping[str, Any]
    """`rollout.vllm`: further engine arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    pid: int
    """Process that computes."""
    versions: Mapping[str, str]
