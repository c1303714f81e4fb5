"""What importing costs: each case in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "vllm", "megatron", "transformers"}
LIST_MODULES = "import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"


def modules_after(statement: str) -> set[str]:
    """Top-level names of what is loaded once the statement has run."""
    command = [sys.executable, "-c", LIST_MODULES.format(statement=statement)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name.partition(".")[0] for name in json.loads(output)}


@pytest.mark.parametrize("module", ["rltrain", "rltrain.config.tree", "rltrain.config", "rltrain.cli.doctor"])
def test_configs_and_the_command_line_load_nothing_heavy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert "rltrain" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("module", ["rltrain.launch", "rltrain.trainer.sync"])
def test_the_driver_loads_no_engine(module: str) -> None:
    assert not modules_after(f"import {module}") & {"torch", "vllm", "megatron"}
