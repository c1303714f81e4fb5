from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rltrain.config.errors import UserError
from rltrain.telemetry.rollout_files import as_json, read_rollout, write_rollout
from rltrain.types.sample import FinishReason, Message, Sample, SampleGroup, Status

MakeSample = Callable[..., Sample]
MakeGroup = Callable[..., SampleGroup]
LINE_SEPARATORS = "a\u2028b\u2029c\u0085d\r\ne\x0bf\x00g \ufeff"


def test_dat_04_texts_with_line_separators_round_trip(
    tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup
) -> None:
    group = make_group(make_sample(), content=LINE_SEPARATORS, label="\u2028")
    write_rollout(tmp_path / "x.parquet", [group], step=1, responses_B=[LINE_SEPARATORS])
    (row,) = read_rollout(tmp_path / "x.parquet")
    assert row.prompt.encode() == LINE_SEPARATORS.encode()
    assert (row.label, row.response) == ("\u2028", LINE_SEPARATORS)
    line = as_json(row)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["prompt"] == LINE_SEPARATORS


def test_every_column_round_trips(tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup) -> None:
    samples = [
        make_sample([5, 6, 2], logprob=-0.3, mask=[1, 0, 1], reward=0.25, parts={"a": 0.5, "b": 0.0}, version=4),
        make_sample([], index=1, reward=None, status=Status.NO_ROOM, finish_reason=FinishReason.NO_ROOM),
    ]
    write_rollout(tmp_path / "x.parquet", [make_group(*samples)], step=9, advantages_B=[0.5, 0.0])
    first, second = read_rollout(tmp_path / "x.parquet")
    assert (first.step, first.version, first.group_id, first.index, first.prompt_id) == (9, 4, "1/0", 0, "rep:1")
    assert (first.prompt_ids, first.response_ids, first.loss_mask) == ([3, 4], [5, 6, 2], [True, False, True])
    assert first.logprobs == samples[0].logprobs.tolist(), "the very float32 values"
    assert (first.finish_reason, first.status, first.reward, first.advantage) == ("stop", "ok", 0.25, 0.5)
    assert first.reward_parts == {"a": 0.5, "b": 0.0}
    assert (second.response_ids, second.version, second.reward, second.reward_parts) == ([], None, None, {})
    assert (second.status, second.finish_reason, second.detail) == ("no_room", "no_room", "why")
    assert second.response is None


def test_log_07_the_file_keeps_raw_rewards_beside_advantages(
    tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup
) -> None:
    group = make_group(make_sample(reward=1.0), make_sample(reward=0.0))
    write_rollout(tmp_path / "x.parquet", [group], step=1, advantages_B=[0.707107, -0.707107])
    rows = read_rollout(tmp_path / "x.parquet")
    assert [row.reward for row in rows] == [1.0, 0.0]
    assert [row.advantage for row in rows] == [0.707107, -0.707107]


def test_messages_are_stored_as_json(tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup) -> None:
    group = make_group(make_sample(), content=(Message(role="user", content="é?"),))
    write_rollout(tmp_path / "x.parquet", [group], step=1)
    (row,) = read_rollout(tmp_path / "x.parquet")
    assert json.loads(row.prompt) == [{"role": "user", "content": "é?"}]


def test_lone_surrogates_are_escaped_instead_of_ending_the_run(
    tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup
) -> None:
    write_rollout(tmp_path / "x.parquet", [make_group(make_sample(), content="a\ud800b")], step=1)
    assert read_rollout(tmp_path / "x.parquet")[0].prompt == "a\\ud800b"


def test_a_column_of_another_length_is_refused(tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup) -> None:
    with pytest.raises(ValueError, match="2 advantages for 1 samples"):
        write_rollout(tmp_path / "x.parquet", [make_group(make_sample())], step=1, advantages_B=[1.0, 2.0])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, make_sample: MakeSample, make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    write_rollout(path, [make_group(make_sample())], step=1)
    before = path.read_bytes()

    def half_written(table: Any, place: Path, **_: Any) -> None:
        place.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pyarrow.parquet, "write_table", half_written)
    with pytest.raises(OSError, match="disk full"):
        write_rollout(path, [make_group(make_sample())], step=2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.parquet"]
    assert path.read_bytes() == before


def test_another_schema_version_and_other_files_are_refused(tmp_path: Path) -> None:
    table = pyarrow.table({"step": [1]}).replace_schema_metadata({b"rltrain.rollout.version": b"99"})
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet")
    with pytest.raises(UserError, match="has rollout schema version 99, this rltrain reads 1"):
        read_rollout(tmp_path / "new.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"text\.parquet: is no readable parquet file"):
        read_rollout(tmp_path / "text.parquet")
