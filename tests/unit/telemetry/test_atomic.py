from pathlib import Path

import pytest

from rltrain.telemetry.atomic import new_directory, replacing, write_text


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


def written(path: Path) -> str:
    return (path / "x").read_text()


@pytest.mark.parametrize("left", [".d.partial", ".d.replaced"])
def test_what_a_killed_process_left_does_not_matter(tmp_path: Path, left: str) -> None:
    for name in ("d", left):
        (tmp_path / name / "inside").mkdir(parents=True)
        (tmp_path / name / "x").write_text("old")
    with new_directory(tmp_path / "d", replace=True) as partial:
        assert list(partial.iterdir()) == []
        (partial / "x").write_text("new")
        assert written(tmp_path / "d") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    assert written(tmp_path / "d") == "new"


def test_a_process_that_ended_between_the_two_renames_took_nothing(tmp_path: Path) -> None:
    (tmp_path / ".d.replaced").mkdir()
    (tmp_path / ".d.replaced" / "x").write_text("old")
    with pytest.raises(FileExistsError, match="isn't empty"), new_directory(tmp_path / "d"):
        pass
    assert written(tmp_path / "d") == "old"


def test_two_processes_do_not_write_one_directory(tmp_path: Path) -> None:
    with new_directory(tmp_path / "d") as partial:
        (partial / "x").write_text("first")
        with pytest.raises(BlockingIOError), new_directory(tmp_path / "d"):
            pass
    assert written(tmp_path / "d") == "first"
