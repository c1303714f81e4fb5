"""What an engine's process must find in its environment before vLLM is imported."""

from __future__ import annotations

_ALWAYS = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # The engine still gets a process of its own; this keeps a single worker inside of it instead of in one more.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
_ON_CPU = {
    # vLLM's own binding leaves a core unused and fails where NUMA nodes are fewer than workers.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Eager mode still compiles the sampler's helper: seconds at the first request, and a C++ compiler.
    "TORCH_COMPILE_DISABLE": "1",
}


def engine_environment(*, device: str, threads: int | None = None) -> dict[str, str]:
    """Variables for a process on `device` (`cpu` or `cuda`) that computes with so many threads."""
    found = dict(_ALWAYS)
    if device == "cpu":
        found |= _ON_CPU
    if threads is not None:
        found["OMP_NUM_THREADS"] = str(threads)
    return found
