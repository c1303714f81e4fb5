from pathlib import Path

import pytest

from rltrain.telemetry.atomic import replacing, write_text


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
