"""What every test shares: a small, quiet, offline environment, the markers, and the order fast before slow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Set before anything imports torch or a tokenizer, and inherited by every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.update(HF_HUB_OFFLINE="1", RAY_USAGE_STATS_ENABLED="0", VLLM_NO_USAGE_STATS="1", WANDB_MODE="offline")
for name in ("RAY_ADDRESS", "WANDB_API_KEY", "COLUMNS"):
    os.environ.pop(name, None)

INTEGRATION = Path(__file__).parent / "integration"
INTEGRATION_TIMEOUT_S = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-gpu", action="store_true", help="run the tests that need a CUDA device")
    parser.addoption("--skip-slow", action="store_true", help="leave out the tests that take more than a minute")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if INTEGRATION in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_S))
        if item.get_closest_marker("gpu") and not config.getoption("--run-gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: --run-gpu"))
        if item.get_closest_marker("slow") and config.getoption("--skip-slow"):
            item.add_marker(pytest.mark.skip(reason="takes more than a minute: --skip-slow"))
    items.sort(key=_cost)  # stable: within a class, the order of the files stays


def _cost(item: pytest.Item) -> tuple[bool, bool]:
    return item.get_closest_marker("integration") is not None, item.get_closest_marker("slow") is not None
