"""Where a step's metrics go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from rltrain.config.namespace import Args
from rltrain.telemetry.jsonl_sink import JsonlSink
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.telemetry.tensorboard_sink import TensorBoardSink
from rltrain.telemetry.wandb_sink import WandbSink


class Sink(Protocol):
    """Takes one set of metrics a step, in order of the steps."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def rewind(self, step: int) -> None:
        """Drops what an earlier process wrote of steps after this one, which come again."""
        ...

    def close(self) -> None: ...


class Sinks:
    """Several sinks as one; `close` closes all of them, also where one fails."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.write(step, metrics)

    def rewind(self, step: int) -> None:
        for sink in self._sinks:
            sink.rewind(step)

    def close(self) -> None:
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)


def open_sinks(args: Args, directory: RunDirectory) -> Sinks:
    """The sinks that `telemetry:` asks for; `metrics.jsonl` always."""
    sinks: list[Sink] = [JsonlSink(directory.metrics)]
    if args.telemetry.tensorboard:
        sinks.append(TensorBoardSink(directory.tensorboard))
    if args.telemetry.wandb is not None:
        sinks.append(WandbSink(args, directory))
    return Sinks(sinks)
