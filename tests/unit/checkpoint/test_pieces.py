"""Tensors that several files have pieces of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rltrain.checkpoint.manifest import Damaged, facts_of
from rltrain.checkpoint.pieces import Piece, SavedTensors, write_pieces

WHOLE = torch.arange(7 * 6, dtype=torch.float32).view(7, 6)


def boxes(*corners: tuple[int, int, int, int], kind: str = "weight") -> list[Piece]:
    return [Piece(kind, "w", (7, 6), (a, c), WHOLE[a:b, c:d].clone()) for a, b, c, d in corners]


def saved(directory: Path, *files: list[Piece]) -> SavedTensors:
    for number, pieces in enumerate(files):
        write_pieces(directory / f"rank_{number:05}.safetensors", pieces)
    return SavedTensors(directory)


def test_any_slice_of_what_lies_in_pieces_is_that_of_the_whole(tmp_path: Path) -> None:
    found = saved(tmp_path, boxes((0, 3, 0, 6), (3, 7, 4, 6)), boxes((3, 7, 0, 4))).part("weight", "w")
    assert torch.equal(found[:], WHOLE)
    for start in range(8):
        for end in range(8):
            assert torch.equal(found[start:end], WHOLE[start:end])
            assert torch.equal(found[:, start:end], WHOLE[:, start:end])


def test_kinds_and_types_are_kept_apart(tmp_path: Path) -> None:
    halves = [Piece("frozen", "w", (7, 6), (0, 0), WHOLE.bfloat16())]
    state = [Piece("random", "0/cpu", (5,), (0,), torch.arange(5, dtype=torch.uint8))]
    found = saved(tmp_path, boxes((0, 7, 0, 6)), halves + state)
    assert dict(found.shapes("weight")) == {"w": (7, 6)}
    assert found.part("frozen", "w")[2:3].dtype is torch.bfloat16
    assert found.part("random", "0/cpu")[:].tolist() == [0, 1, 2, 3, 4]


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    saved(tmp_path, boxes((0, 3, 0, 6)), boxes((3, 7, 0, 6)))
    (tmp_path / "rank_00001.safetensors").unlink()
    with pytest.raises(Damaged, match="weight of w has 18 of 42 values"):
        SavedTensors(tmp_path)


def test_a_file_that_is_cut_off_is_told(tmp_path: Path) -> None:
    saved(tmp_path, boxes((0, 7, 0, 6)))
    path = tmp_path / "rank_00000.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Damaged, match=r"rank_00000\.safetensors can't be read"):
        SavedTensors(tmp_path)


def test_a_file_of_something_else_is_told(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": WHOLE}, tmp_path / "model.safetensors")
    with pytest.raises(Damaged, match=r"model\.safetensors can't be read"):
        SavedTensors(tmp_path)


def test_pieces_of_different_tensors_under_one_name_are_told(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="w as part of another shape"):
        saved(tmp_path, boxes((0, 7, 0, 6)), [Piece("weight", "w", (7, 7), (0, 6), torch.zeros(7, 1))])


def test_a_file_is_what_safetensors_reads_in_every_type(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    values = [
        torch.randn(3, 5).to(torch.bfloat16),  # of an odd length, before wider ones
        torch.tensor([1.5, -0.0, 3e38]),
        torch.randn(4, 6).half().T,
        torch.arange(7, dtype=torch.uint8),
        torch.tensor([[2**40, -1]]),
        torch.zeros(0, 4),
        torch.tensor(2.0),
    ]
    path = tmp_path / "rank.safetensors"
    written = write_pieces(
        path, [Piece("weight", f"t{n}", tuple(v.shape), (0,) * v.dim(), v) for n, v in enumerate(values)]
    )
    assert written == facts_of(path)
    found = load_file(path)
    assert len(found) == len(values)
    saved = SavedTensors(tmp_path)
    for number, expected in enumerate(values):
        whole = saved.part("weight", f"t{number}")[:]
        assert whole.dtype == expected.dtype
        assert torch.equal(whole, expected)
