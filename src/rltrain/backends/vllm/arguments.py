"""An engine's setup as arguments of vLLM's `AsyncEngineArgs`."""

from __future__ import annotations

from typing import Any

from rltrain.backends.vllm.setup import EngineSetup
from rltrain.config.errors import UserError
from rltrain.config.passthrough import VLLM_FIXED, VLLM_TAKEN

WORKER_EXTENSION = "rltrain.backends.vllm.worker_extension.WorkerExtension"
MOST_SEQUENCES = {"cpu": 256, "cuda": 1024}
"""Sequences generated at once unless `rollout.vllm.max_num_seqs` says otherwise; the others wait in the engine."""
TOKENS_PER_ENGINE_STEP = 4096
"""Least room for tokens in one engine step on a CPU, where vLLM's default splits a step's prompts."""
OWNED = VLLM_FIXED | VLLM_TAKEN.keys()
"""Arguments that other keys of the config decide, or that log-probs and weight sync depend on."""


def engine_arguments(setup: EngineSetup) -> dict[str, Any]:
    """Raises UserError where `rollout.vllm` sets an argument that isn't its to set."""
    taken = sorted(OWNED & setup.arguments.keys())
    if taken:
        rule = "is set by rltrain from its own keys"
        raise UserError.single(f"rollout.vllm.{taken[0]}", rule, value=setup.arguments[taken[0]])
    found: dict[str, Any] = {
        "model": str(setup.model_path),
        "dtype": setup.dtype,
        "max_model_len": setup.context_length,
        "max_num_seqs": min(setup.max_sequences, MOST_SEQUENCES[setup.device]),
        "tensor_parallel_size": setup.tensor_parallel,
        "seed": setup.seed,
        "load_format": "dummy" if setup.random_init else "auto",
        # Log-probs of the distribution that tokens are drawn from, which is what the trainer computes as well.
        "logprobs_mode": "processed_logprobs",
        # The model's own generation config would add stop ids and penalties that nobody asked for.
        "generation_config": "vllm",
        "skip_tokenizer_init": not setup.stop_texts,
        "worker_extension_cls": WORKER_EXTENSION,
        "disable_log_stats": True,
    }
    if setup.kv_cache_bytes is not None:
        found["kv_cache_memory_bytes"] = setup.kv_cache_bytes
    if setup.gpu_share is not None:
        found["gpu_memory_utilization"] = setup.gpu_share  # with a cache of a given size it is no more than a check
    if setup.sleeps:
        found["enable_sleep_mode"] = True
    if setup.device == "cpu":
        found |= {
            "enforce_eager": True,
            "max_num_batched_tokens": max(setup.context_length, TOKENS_PER_ENGINE_STEP),
            # It hides the scheduler behind a GPU's work; on a CPU it only adds to it.
            "async_scheduling": False,
        }
    return found | dict(setup.arguments)
