"""The doctor's deep look: really importing the heavy libraries, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from rltrain.doctor.finding import Finding, Level

HEAVY_MODULES = ("torch", "transformers", "ray", "megatron.core", "vllm.v1.engine.async_llm")
TIMEOUT_S = 300.0


def check_import(module: str, *, timeout_s: float = TIMEOUT_S) -> Finding:
    """Whether the module can be imported here, with the error's last line where it can't."""
    subject = f"import {module}"
    command = [sys.executable, "-c", f"import {module}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Finding(subject=subject, level=Level.MEND, found=f"not done after {timeout_s:.0f} s")
    if done.returncode == 0:
        return Finding(subject=subject, level=Level.FINE, found="works")
    lines = done.stderr.strip().splitlines()
    reason = lines[-1] if lines else f"exit status {done.returncode}"
    return Finding(
        subject=subject,
        level=Level.MEND,
        found="fails",
        remark=reason,
        command=f"{sys.executable} -c 'import {module}'",
    )


def check_imports() -> Iterator[Finding]:
    for module in HEAVY_MODULES:
        yield check_import(module)
