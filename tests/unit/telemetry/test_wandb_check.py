from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from rltrain.config.errors import UserError
from rltrain.config.telemetry import WandbConfig
from rltrain.telemetry.wandb_check import check_wandb, wandb_mode

ONLINE = WandbConfig(project="x", mode="online")
SILENT = WandbConfig(project="x")


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb is installed, and neither the environment nor the home directory has a key."""
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rltrain.telemetry.wandb_check.find_spec", lambda name: find_spec("json"))


def test_a_missing_package_is_a_user_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltrain.telemetry.wandb_check.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"telemetry\.wandb: the package wandb is not installed .*rltrain\[wandb\]"):
        check_wandb(ONLINE)
    check_wandb(None)


def test_a_missing_key_is_told_before_anything_starts() -> None:
    with pytest.raises(UserError, match=r"telemetry\.wandb: no key .*WANDB_API_KEY"):
        check_wandb(ONLINE)
    check_wandb(WandbConfig(project="x", mode="offline"))


@pytest.mark.parametrize("variable", ["WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"])
def test_a_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x" * 40)
    check_wandb(ONLINE)


def test_a_key_may_come_from_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password " + "x" * 40 + "\n")
    (tmp_path / ".netrc").chmod(0o600)
    check_wandb(ONLINE)
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    with pytest.raises(UserError, match="no key"):
        check_wandb(ONLINE)


def test_a_server_of_wandbs_own_settings_is_left_to_wandb(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings").write_text("[default]\nbase_url = https://wandb.example.org\n")
    check_wandb(ONLINE)


def test_the_configs_mode_wins_and_the_environments_counts_where_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wandb_mode(SILENT) == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert (wandb_mode(SILENT), wandb_mode(ONLINE)) == ("offline", "online")
    check_wandb(SILENT)
    with pytest.raises(UserError, match="no key"):
        check_wandb(ONLINE)


def test_a_mode_of_the_environment_that_wandb_does_not_know_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offlin")
    with pytest.raises(UserError, match="WANDB_MODE = offlin: must be one of online, offline"):
        check_wandb(SILENT)
