"""Where the ranks of a process group meet."""

from __future__ import annotations

import socket

from torch._C._distributed_c10d import Store, TCPStore  # torch.distributed gives them without typing them


def make_store(address: str, port: int, *, rank: int, world_size: int) -> Store:
    """Rank 0 serves it at exactly this address; left to itself, torch would listen on every one of the machine."""
    if rank != 0:
        return TCPStore(address, port, world_size, is_master=False)
    listener = socket.create_server((address, port))
    return TCPStore(
        address,
        port,
        world_size,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
