"""The environment of worker processes: an allow-list, never all of the caller's. The only writer of os.environ."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager

TOKEN_VARIABLE = "RLTRAIN_RUN_TOKEN"
"""Marks every process of a run, so that they can be found and ended when the driver dies."""

_PASSED_ON = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHASHSEED",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "CPATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "XDG_CACHE_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ]
)
_PASSED_ON_PREFIXES = ("LC_", "NCCL_", "GLOO_", "UCX_", "NVIDIA_", "TORCHINDUCTOR_", "VLLM_", "RAY_")

_RAY_LOOPBACK = {
    # Without this, Ray binds every port to all interfaces of the machine, even for a cluster of one node.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
_RAY_DEFAULTS = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}

LOOPBACK_COLLECTIVES = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Keeps collectives of a run on one machine within it."""


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that workers may see."""
    return {
        name: value for name, value in environment.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def requested(env: Mapping[str, str | None]) -> dict[str, str]:
    """`cluster.env` with null entries filled from the caller's environment; those not set there are left out."""
    found = {name: os.environ.get(name) if value is None else value for name, value in env.items()}
    return {name: value for name, value in found.items() if value is not None}


def prepare_ray_import(*, loopback: bool) -> None:
    """Sets what Ray reads when it is first imported."""
    for name, value in (_RAY_DEFAULTS | (_RAY_LOOPBACK if loopback else {})).items():
        os.environ.setdefault(name, value)


@contextmanager
def scrubbed(token: str) -> Generator[None]:
    """Within it, os.environ holds only what workers may see and the run's token: what is started inherits that."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(allowed(before), **{TOKEN_VARIABLE: token})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
