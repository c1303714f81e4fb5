"""The Ray cluster of a run: started on loopback and ended with it, or one that is there already and joined."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltrain.cluster import environment
from rltrain.cluster.placement import Node
from rltrain.cluster.reaper import Reaper
from rltrain.config.cluster import ClusterConfig
from rltrain.config.errors import UserError


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to Ray."""

    worker_environment: dict[str, str]
    """What every worker of this run gets, besides its role's own variables."""

    def nodes(self) -> list[Node]:
        """The cluster's machines, as far as they are alive."""
        import ray

        return [_node(found) for found in ray.nodes() if found["Alive"]]


@contextmanager
def ray_session(config: ClusterConfig, *, num_gpus: int) -> Generator[Session]:
    """Connects to Ray; on leaving, all that this run started there is gone, also when the driver is killed."""
    token = uuid.uuid4().hex
    temporary_directory = Path(tempfile.mkdtemp(prefix="rltrain-"))
    reaper = Reaper(token, temporary_directory)
    environment.prepare_ray_import(loopback=config.address is None)
    import ray

    try:
        with environment.scrubbed(token):
            if config.address is None:
                _start(config, num_gpus=num_gpus, temporary_directory=temporary_directory)
            else:
                _join(config.address)
        own = environment.LOOPBACK_COLLECTIVES if config.address is None else {}
        yield Session(own | environment.requested(config.env) | {environment.TOKEN_VARIABLE: token})
    finally:
        ray.shutdown()
        reaper.finish()
        shutil.rmtree(temporary_directory, ignore_errors=True)


def _node(found: Mapping[str, Any]) -> Node:
    resources = found["Resources"]
    return Node(found["NodeID"], int(resources.get("GPU", 0)), int(resources.get("CPU", 0)))


def _start(config: ClusterConfig, *, num_gpus: int, temporary_directory: Path) -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=os.cpu_count(),
        num_gpus=num_gpus,
        include_dashboard=config.dashboard,
        dashboard_host="127.0.0.1",
        object_store_memory=config.object_store_bytes,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(temporary_directory),
    )


def _join(address: str) -> None:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        hint = "start one with `ray start --head`, or leave the key out"
        raise UserError.single("cluster.address", "no Ray cluster answers", value=address, hint=hint) from error
