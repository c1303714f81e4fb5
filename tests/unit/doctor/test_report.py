"""Tests of rltrain.doctor.report."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from rltrain.doctor.finding import Finding, Level
from rltrain.doctor.report import print_report


def shown(*findings: Finding) -> str:
    stream = StringIO()
    print_report(findings, console=Console(file=stream, width=60))
    return stream.getvalue()


def test_a_command_stays_on_one_line_however_narrow_the_terminal() -> None:
    command = "python -m pip install --no-deps " + "a-package-with-a-rather-long-name==1.2.3 " * 2
    assert command in shown(Finding(subject="x", level=Level.MEND, found="missing", command=command))


def test_square_brackets_are_shown_as_they_are() -> None:
    assert "ray[default]" in shown(Finding(subject="ray[default]", level=Level.NOTE, found="missing"))


def test_the_last_line_counts_what_is_wrong() -> None:
    fine = Finding(subject="a", level=Level.FINE, found="1")
    broken = Finding(subject="b", level=Level.MEND, found="2")
    assert shown(fine).splitlines()[-1] == "Everything is fine."
    assert shown(fine, broken).splitlines()[-1] == "1 to mend, 0 warnings"
