"""Writes a process's pieces to its file on a thread, while the process goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from rltrain.checkpoint.manifest import FileFacts
from rltrain.checkpoint.pieces import Piece, write_pieces
from rltrain.types.errors import RunError, SaveFailed

NICENESS = 10
"""Of the thread, so that training comes first."""


class PieceWriter:
    """One file at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="save", initializer=_yield_to_others)
        self._writing: Future[FileFacts] | None = None

    def start(self, path: Path, pieces: Sequence[Piece]) -> None:
        """The pieces' values mustn't change from now on."""
        assert self._writing is None, "finish() comes first"
        self._writing = self._thread.submit(_write, path, pieces)

    def finish(self) -> FileFacts:
        """Waits for the file that was started.

        Raises SaveFailed where the disk can't take it, RunError for a value that isn't finite: then nothing is written.
        """
        assert self._writing is not None, "start() comes first"
        try:
            return self._writing.result()
        finally:
            self._writing = None

    def close(self) -> None:
        self._thread.shutdown()


def _yield_to_others() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _is_finite(values: torch.Tensor) -> bool:
    """In one pass, without a tensor of answers: a NaN is both the least and the greatest value."""
    if not values.is_floating_point() or not values.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(values))).all())


def _write(path: Path, pieces: Sequence[Piece]) -> FileFacts:
    for piece in pieces:
        if not _is_finite(piece.values):
            raise RunError(f"{piece.kind} of {piece.name} isn't finite, so this step isn't saved")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_pieces(path, pieces)
    except OSError as error:
        raise SaveFailed(f"{path} can't be written: {error}") from error
