from __future__ import annotations

import subprocess
import sys

from rltrain.backends.vllm.environment import engine_environment


def test_a_cpu_engine_compiles_nothing_and_binds_no_cores() -> None:
    found = engine_environment(device="cpu", threads=2)
    assert found["TORCH_COMPILE_DISABLE"] == "1"
    assert found["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert found["OMP_NUM_THREADS"] == "2"


def test_a_gpu_engine_may_compile() -> None:
    found = engine_environment(device="cuda")
    assert "TORCH_COMPILE_DISABLE" not in found
    assert "OMP_NUM_THREADS" not in found


def test_no_engine_asks_the_network() -> None:
    for device in ("cpu", "cuda"):
        found = engine_environment(device=device)
        assert (found["HF_HUB_OFFLINE"], found["VLLM_NO_USAGE_STATS"]) == ("1", "1")


def test_the_drivers_modules_load_neither_torch_nor_vllm() -> None:
    code = (
        "import sys; import rltrain.backends.vllm.environment, rltrain.backends.vllm.setup, "
        "rltrain.backends.vllm.arguments, rltrain.backends.vllm.installation; "
        "print([name for name in ('torch', 'vllm', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
