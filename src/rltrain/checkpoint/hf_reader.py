"""A Hugging Face directory's safetensors, read a tensor at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open
from torch import Tensor

from rltrain.config.errors import UserError

INDEX = "model.safetensors.index.json"


class Sliceable(Protocol):
    """A tensor, or a part of a file that becomes one when it is sliced."""

    def __getitem__(self, index: Any, /) -> Tensor: ...


class SafetensorsDirectory:
    """Names and shapes at once, values when asked for. Raises UserError where a file is missing or broken."""

    def __init__(self, path: Path, *, key: str) -> None:
        self._path, self._key = path, key
        self._readers: dict[str, Any] = {}
        self._files: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in self._file_names():
            reader = self._readers[file] = self._opened(file)
            for name in reader.keys():  # noqa: SIM118 - the reader is no mapping
                self._files[name] = file
                self.shapes[name] = tuple(reader.get_slice(name).get_shape())

    def part(self, name: str) -> Sliceable:
        """A tensor that is read as far as it is sliced."""
        return self._readers[self._files[name]].get_slice(name)

    def _file_names(self) -> list[str]:
        index = self._path / INDEX
        try:
            if index.is_file():
                return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError) as error:
            raise UserError.single(self._key, f"{INDEX} can't be read: {error}", value=self._path) from error
        files = sorted(file.name for file in self._path.glob("*.safetensors"))
        if not files:
            raise UserError.single(self._key, "has no *.safetensors", value=self._path)
        return files

    def _opened(self, file: str) -> Any:
        try:
            return safe_open(self._path / file, framework="pt")
        except (OSError, SafetensorError) as error:
            raise UserError.single(self._key, f"{file} can't be read: {error}", value=self._path) from error
