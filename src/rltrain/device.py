"""The device of this process: its name for torch, and the collective back end that fits it."""

from __future__ import annotations

import torch

COLLECTIVES = {"cpu": "gloo", "cuda": "nccl"}
"""torch.distributed's back end by kind of device."""


def collective_backend(kind: str) -> str:
    return COLLECTIVES[kind]


def use_device(kind: str) -> torch.device:
    """The device that this process computes on from now on; the first GPU it sees, for workers see their own only."""
    if kind == "cuda":
        torch.cuda.set_device(0)
        return torch.device("cuda", 0)
    return torch.device(kind)
