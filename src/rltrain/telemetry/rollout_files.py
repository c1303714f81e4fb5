"""A step's samples as a parquet file, a row a sample, and back.

Columns of schema version 1: `step`, `version` (weights that sampled the last token; null where nothing was),
`group_id`, `index`, `prompt_id`, `prompt` (text, or messages as JSON), `label`, `response` (text, where it was
decoded), `prompt_ids`, `response_ids`, `logprobs`, `loss_mask`, `finish_reason`, `status`, `detail`, `reward` (raw),
`reward_parts`, `advantage` (null before advantages are computed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as _pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet as _parquet  # pyright: ignore[reportMissingTypeStubs]

from rltrain.config.errors import UserError
from rltrain.telemetry.atomic import replacing
from rltrain.types.batch import Ragged
from rltrain.types.sample import Prompt, Sample, SampleGroup

pa: Any = _pyarrow  # ships no types
parquet: Any = _parquet

SCHEMA_VERSION = 1
VERSION_KEY = b"rltrain.rollout.version"
SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("response", pa.string()),
        pa.field("prompt_ids", pa.large_list(pa.int32())),
        pa.field("response_ids", pa.large_list(pa.int32())),
        pa.field("logprobs", pa.large_list(pa.float32())),
        pa.field("loss_mask", pa.large_list(pa.bool_())),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("reward", pa.float64()),
        pa.field("reward_parts", pa.map_(pa.string(), pa.float64())),
        pa.field("advantage", pa.float64()),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """One row of a rollout file; the columns are described above."""

    step: int
    version: int | None
    group_id: str
    index: int
    prompt_id: str
    prompt: str
    label: str | None
    response: str | None
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    loss_mask: list[bool]
    finish_reason: str
    status: str
    detail: str
    reward: float | None
    reward_parts: Mapping[str, float]
    advantage: float | None


def write_rollout(
    path: Path,
    groups: Sequence[SampleGroup],
    *,
    step: int,
    advantages_B: Sequence[float] | None = None,
    responses_B: Sequence[str] | None = None,
) -> None:
    """Writes one row a sample, groups in order; the file appears whole or not at all.

    `advantages_B` and `responses_B` (decoded texts) run over all samples of all groups.
    """
    rows = [(group.prompt, sample) for group in groups for sample in group.samples]
    for name, column in (("advantages", advantages_B), ("responses", responses_B)):
        if column is not None and len(column) != len(rows):
            raise ValueError(f"{len(column)} {name} for {len(rows)} samples")
    columns = {"step": [step] * len(rows), **_text_columns(rows), **_token_columns([sample for _, sample in rows])}
    columns["response"] = [None] * len(rows) if responses_B is None else [_storable(text) for text in responses_B]
    columns["advantage"] = [None] * len(rows) if advantages_B is None else advantages_B
    table = pa.table([pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA)
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd", compression_level=1)


def read_rollout(path: Path) -> list[RolloutRow]:
    """The rows of a file in their order. Raises UserError for a file of another kind or schema version."""
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise UserError.single(str(path), f"is no readable parquet file: {error}") from error
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    found = metadata.get(VERSION_KEY, b"none").decode(errors="replace")
    if found != str(SCHEMA_VERSION):
        raise UserError.single(str(path), f"has rollout schema version {found}, this rltrain reads {SCHEMA_VERSION}")
    return [RolloutRow(**(row | {"reward_parts": dict(row["reward_parts"])})) for row in table.to_pylist()]


def as_json(row: RolloutRow) -> str:
    """A row as one line of JSON, for people and other tools: separators of lines inside texts are escaped."""
    return json.dumps(asdict(row))


def _text_columns(rows: Sequence[tuple[Prompt, Sample]]) -> dict[str, Any]:
    return {
        "group_id": [sample.group_id for _, sample in rows],
        "index": [sample.index for _, sample in rows],
        "prompt_id": [_storable(prompt.id) for prompt, _ in rows],
        "prompt": [_prompt_text(prompt) for prompt, _ in rows],
        "label": [None if prompt.label is None else _storable(prompt.label) for prompt, _ in rows],
        "finish_reason": [str(sample.finish_reason) for _, sample in rows],
        "status": [str(sample.status) for _, sample in rows],
        "detail": [_storable(sample.detail) for _, sample in rows],
        "reward": [sample.reward for _, sample in rows],
        "reward_parts": [list(sample.reward_parts.items()) for _, sample in rows],
        "version": [sample.version_spans[-1].version if sample.version_spans else None for _, sample in rows],
    }


def _token_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "prompt_ids": _list_column(Ragged[np.int32].of([sample.prompt_ids for sample in samples], np.int32)),
        "response_ids": _list_column(Ragged[np.int32].of([sample.response_ids for sample in samples], np.int32)),
        "logprobs": _list_column(Ragged[np.float32].of([sample.logprobs for sample in samples], np.float32)),
        "loss_mask": _list_column(Ragged[np.bool_].of([sample.loss_mask for sample in samples], np.bool_)),
    }


def _list_column(ragged: Ragged[Any]) -> Any:
    return pa.LargeListArray.from_arrays(pa.array(ragged.offsets), pa.array(ragged.values))


def _prompt_text(prompt: Prompt) -> str:
    if isinstance(prompt.content, str):
        return _storable(prompt.content)
    return _storable(json.dumps([asdict(message) for message in prompt.content], ensure_ascii=False))


def _storable(text: str) -> str:
    """The very text, unless it holds lone surrogates, which no UTF-8 file can: those are escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
