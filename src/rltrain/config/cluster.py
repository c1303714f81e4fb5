"""`cluster:` the Ray cluster and the devices of the run."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rltrain.config.section import Seconds, Section

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableValue = Annotated[str, Field(pattern=r"^[^\x00]*$")]

ADDRESS = re.compile(r"(?:[^\s/:]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class ClusterConfig(Section):
    address: str | None = None
    """Address of a running Ray cluster to join (`auto` or `host:port`); by default one is started on loopback and
    ended with the run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models live; `auto` takes CUDA where the machine has it."""
    gpus: int | None = Field(default=None, ge=0, le=2**16)
    """GPUs the run may use; counted on this machine when left out."""
    gpu_memory_bytes: int | None = Field(default=None, ge=2**30, le=2**42)
    """Memory of the smallest of the GPUs; asked of `nvidia-smi` when left out. Checks and the size of the KV cache
    follow from it."""
    object_store_bytes: int = Field(default=256 * 2**20, ge=80 * 2**20, le=2**42)
    """Size of the object store of a cluster that the run starts."""
    dashboard: bool = False
    """Serve Ray's dashboard on loopback (only for a cluster that the run starts)."""
    env: dict[VariableName, VariableValue | None] = {}
    """Environment variables that workers see, besides the few rltrain sets; null passes on the caller's own value."""
    start_timeout_s: Seconds = 300.0
    """Longest wait for the cluster and for every worker to be ready."""

    @field_validator("address")
    @classmethod
    def _names_a_cluster(cls, value: str | None) -> str | None:
        found = ADDRESS.fullmatch(value or "")
        if value in (None, "auto") or (found and 1 <= int(found["port"]) <= 65535):
            return value
        raise ValueError("must be auto or host:port, with a port of 1 to 65535; null starts a cluster for the run")
