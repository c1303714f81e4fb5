"""Writes a model as a Hugging Face directory, a tensor at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from torch import Tensor

from rltrain.checkpoint.hf_reader import INDEX
from rltrain.checkpoint.model_files import CONFIG, carry_files
from rltrain.checkpoint.safetensors_layout import TensorFacts, aligned, chunks, header
from rltrain.telemetry.atomic import new_directory

SHARD_BYTES = 4 * 2**30


def write_hf_directory(
    directory: Path,
    tensors: Sequence[TensorFacts],
    values: Iterable[tuple[str, Tensor]],
    *,
    source: Path,
    dtype: str | None,
    shard_bytes: int = SHARD_BYTES,
    replace: bool = False,
) -> None:
    """Weights in shards with an index, the source's config with this dtype, its tokenizer files byte for byte.

    `values` has those of all `tensors`, in their order; no more than one is held. Without `dtype` the config is
    carried over byte for byte, too. The directory appears when all of it is written. Raises FileExistsError where
    there is one that isn't empty and not to be replaced, OSError.
    """
    with new_directory(directory, replace=replace) as partial:
        _write_shards(partial, tensors, values, shard_bytes)
        carry_files(source, partial)
        if dtype is not None:
            config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
            config.pop("torch_dtype", None)
            text = json.dumps(config | {"dtype": dtype}, indent=2, ensure_ascii=False) + "\n"
            (partial / CONFIG).write_text(text, encoding="utf-8")


def shards(tensors: Sequence[TensorFacts], shard_bytes: int) -> Mapping[str, Sequence[TensorFacts]]:
    """By the files' names: in their order, as many in each as fit, at least one."""
    found: list[list[TensorFacts]] = [[]]
    room = shard_bytes
    for facts in tensors:
        if found[-1] and facts.num_bytes > room:
            found.append([])
            room = shard_bytes
        found[-1].append(facts)
        room -= facts.num_bytes
    return {f"model-{number:05}-of-{len(found):05}.safetensors": inside for number, inside in enumerate(found, start=1)}


def _write_shards(
    folder: Path, tensors: Sequence[TensorFacts], values: Iterable[tuple[str, Tensor]], shard_bytes: int
) -> None:
    found = shards(tensors, shard_bytes)
    left = iter(values)
    for file, inside in found.items():
        _write_shard(folder / file, inside, left)
    rest = next(left, None)
    assert rest is None, "there are more values than tensors"
    weight_map = {facts.name: file for file, inside in found.items() for facts in inside}
    index = {"metadata": {"total_size": sum(facts.num_bytes for facts in tensors)}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_shard(path: Path, tensors: Sequence[TensorFacts], values: Iterator[tuple[str, Tensor]]) -> None:
    """The values come in the order of `tensors`, which needn't be the file's."""
    order = aligned(tensors)
    head = header(order, {"format": "pt"})
    places: dict[str, int] = {}
    end = len(head)
    for facts in order:
        places[facts.name] = end
        end += facts.num_bytes
    with path.open("wb") as file:
        file.write(head)
        for facts in tensors:
            name, tensor = next(values)
            assert TensorFacts.of(name, tensor) == facts, f"{name} of {tensor.dtype} in place of {facts}"
            _write_at(file, places[name], tensor)


def _write_at(file: IO[bytes], place: int, tensor: Tensor) -> None:
    file.seek(place)
    for chunk in chunks(tensor.cpu()):
        file.write(chunk)
