"""Tests of rltrain.config.readable: nothing here may hang, for a pipe has no writer and a device no end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rltrain.config.readable import read_json, unreadable

pytestmark = pytest.mark.timeout(10)


def test_a_file_is_readable_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert unreadable(tmp_path / "file") is None
    assert unreadable(tmp_path / "link") is None


def test_what_is_no_file_is_told_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "file").write_text("x")
    reasons = {
        tmp_path: "is a directory",
        tmp_path / "pipe": "is a pipe",
        tmp_path / "gone": "there is no such file",
        tmp_path / "file" / "below": "there is no such file",
        tmp_path / "nowhere": "is a link to nothing",
        tmp_path / ("x" * 300): "can't be read: File name too long",
        Path("/dev/zero"): "is a device",
    }
    assert {path: unreadable(path) for path in reasons if not (unreadable(path) or "").startswith(reasons[path])} == {}


def test_a_socket_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert unreadable(Path("s")) == "is a socket, and must be a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0)
    assert unreadable(tmp_path / "file") == "can't be read: Permission denied"


def test_json_is_an_object_or_nothing(tmp_path: Path) -> None:
    assert read_json(tmp_path / "gone.json") is None
    (tmp_path / "a.json").write_text('{"x": 1}')
    assert read_json(tmp_path / "a.json") == {"x": 1}
    for text, reason in (("[1]", "must hold a JSON object"), ("{", "can't be read"), ("[" * 100_000, "can't be read")):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(ValueError, match=reason):
            read_json(tmp_path / "b.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="is a pipe"):
        read_json(tmp_path / "pipe.json")
