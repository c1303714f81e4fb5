"""Files that are written beside what a process does."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
import torch

from rltrain.checkpoint.manifest import facts_of
from rltrain.checkpoint.pieces import Piece, SavedTensors
from rltrain.checkpoint.writer import PieceWriter
from rltrain.types.errors import RunError, SaveFailed
from tests.small_disk import small_disk


@pytest.fixture
def writer() -> Generator[PieceWriter]:
    made = PieceWriter()
    yield made
    made.close()


def piece(values: torch.Tensor) -> Piece:
    return Piece("weight", "model.norm.weight", tuple(values.shape), (0,), values)


def test_what_was_started_is_there_when_it_is_finished(tmp_path: Path, writer: PieceWriter) -> None:
    path = tmp_path / "actor" / "rank_00000.safetensors"
    for values in (torch.zeros(4), torch.ones(4)):
        writer.start(path, [piece(values)])
        assert writer.finish() == facts_of(path)
        assert torch.equal(SavedTensors(path.parent).part("weight", "model.norm.weight")[:], values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_wsy_08_a_weight_that_is_not_finite_is_named_and_not_written(
    tmp_path: Path, writer: PieceWriter, bad: float
) -> None:
    writer.start(tmp_path / "rank.safetensors", [piece(torch.tensor([1.0, bad]))])
    with pytest.raises(RunError, match=r"weight of model\.norm\.weight isn't finite") as raised:
        writer.finish()
    assert not isinstance(raised.value, SaveFailed)  # nothing that another try would mend
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_nothing_is_a_failed_save_and_the_next_one_works(tmp_path: Path, writer: PieceWriter) -> None:
    (tmp_path / "actor").write_text("a file where the directory should be")
    writer.start(tmp_path / "actor" / "rank.safetensors", [piece(torch.zeros(4))])
    with pytest.raises(SaveFailed, match="can't be written"):
        writer.finish()
    writer.start(tmp_path / "rank.safetensors", [piece(torch.zeros(4))])
    assert writer.finish().size > 0


def test_a_disk_that_fills_up_in_the_middle_of_a_file_is_a_failed_save(tmp_path: Path, writer: PieceWriter) -> None:
    with small_disk(tmp_path / "disk", num_bytes=2**20) as disk:
        writer.start(disk / "rank.safetensors", [piece(torch.ones(2**17)), piece(torch.ones(2**18))])
        with pytest.raises(SaveFailed, match="can't be written"):
            writer.finish()
        (disk / "rank.safetensors").unlink(missing_ok=True)
        writer.start(disk / "rank.safetensors", [piece(torch.ones(2**17))])
        assert writer.finish().size > 2**19
