"""Metrics as TensorBoard scalars, by tensorboard's own writer: torch's would load torch into the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoardSink:
    """Writes event files below a directory from a thread of its own; `close` waits for it."""

    def __init__(self, directory: Path) -> None:
        # Half a second of imports, only where wanted.
        from tensorboard.compat.proto import event_pb2, summary_pb2  # pyright: ignore[reportMissingTypeStubs]
        from tensorboard.summary.writer.event_file_writer import (  # pyright: ignore[reportMissingTypeStubs]
            EventFileWriter,
        )

        event_module: Any = event_pb2  # generated at run time: no types to check against
        summary_module: Any = summary_pb2
        self._event = event_module.Event
        self._summary = summary_module.Summary
        self._log = event_module.SessionLog
        self._writer: Any = EventFileWriter(str(directory), flush_secs=10)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def rewind(self, step: int) -> None:
        """TensorBoard leaves out what came before this mark and is of later steps."""
        mark = self._log(status=self._log.START)
        self._writer.add_event(self._event(wall_time=time.time(), step=step + 1, session_log=mark))

    def close(self) -> None:
        self._writer.close()
