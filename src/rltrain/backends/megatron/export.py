"""Writes a model as a Hugging Face directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from rltrain.backends.megatron.convert.checkpoint import INDEX

SHARD_BYTES = 4 * 2**30
CARRIED = ("generation_config.json", "chat_template.*", "token*", "special_tokens_map.json", "added_tokens.json")
CARRIED_TOO = ("vocab.*", "merges.txt", "spiece.model")


def write_hf_directory(
    directory: Path, tensors: Iterator[tuple[str, Tensor]], *, source: Path, dtype: str, shard_bytes: int = SHARD_BYTES
) -> None:
    """Weights in shards with an index, the source's config with this dtype, its tokenizer files byte for byte.

    The directory appears when all of it is written. Raises FileExistsError where there is one that isn't empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"{directory} exists already and isn't empty")
    partial = directory.with_name(f".{directory.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        _write_shards(partial, tensors, shard_bytes)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config.pop("torch_dtype", None)
        text = json.dumps(config | {"dtype": dtype}, indent=2, ensure_ascii=False) + "\n"
        (partial / "config.json").write_text(text, encoding="utf-8")
        for pattern in (*CARRIED, *CARRIED_TOO):
            for file in source.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, partial / file.name)
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_shards(folder: Path, tensors: Iterator[tuple[str, Tensor]], shard_bytes: int) -> None:
    shards: list[list[str]] = []
    held: dict[str, Tensor] = {}
    num_held = num_bytes = 0
    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if held and num_held + size > shard_bytes:
            shards.append(_write_shard(folder, held, len(shards)))
            held, num_held = {}, 0
        held[name] = tensor.to("cpu").contiguous()
        num_held, num_bytes = num_held + size, num_bytes + size
    shards.append(_write_shard(folder, held, len(shards)))
    files = _final_names(len(shards))
    for number, file in enumerate(files):
        (folder / f"shard-{number}").rename(folder / file)
    weight_map = {name: file for file, names in zip(files, shards, strict=True) for name in names}
    index = {"metadata": {"total_size": num_bytes}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_shard(folder: Path, tensors: dict[str, Tensor], number: int) -> list[str]:
    save_file(tensors, folder / f"shard-{number}", metadata={"format": "pt"})
    return list(tensors)


def _final_names(count: int) -> list[str]:
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
