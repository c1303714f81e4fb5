"""Tests of rltrain.doctor.imports."""

from __future__ import annotations

from rltrain.doctor.finding import Level
from rltrain.doctor.imports import check_import


def test_an_importable_module_is_fine() -> None:
    assert check_import("json").level is Level.FINE


def test_a_failing_import_shows_the_errors_last_line() -> None:
    finding = check_import("no_such_module_anywhere")
    assert finding.level is Level.MEND
    assert finding.remark == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"


def test_an_import_that_hangs_is_given_up() -> None:
    finding = check_import("json", timeout_s=0.0)
    assert finding.level is Level.MEND
    assert "not done" in finding.found
