"""Whether Weights & Biases can be logged to, found out before anything starts and without importing its package."""

from __future__ import annotations

import netrc
import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from rltrain.config.errors import UserError
from rltrain.config.telemetry import WandbConfig

MODES = ("online", "offline", "disabled", "shared", "run", "dryrun")
"""What wandb takes in WANDB_MODE; `run` and `dryrun` are its former names of the first two."""
ONLINE = frozenset({"online", "shared", "run"})
DEFAULT_HOST = "api.wandb.ai"


def check_wandb(config: WandbConfig | None) -> None:
    """Raises UserError where wandb is asked for and is not installed, or has no key where it needs one."""
    if config is None:
        return
    if find_spec("wandb") is None:
        hint = "pip install 'rltrain[wandb]', or leave telemetry.wandb out"
        raise UserError.single("telemetry.wandb", "the package wandb is not installed", hint=hint)
    if wandb_mode(config) in ONLINE and not _has_key():
        hint = "set WANDB_API_KEY or run `wandb login`, or set telemetry.wandb.mode to offline"
        raise UserError.single("telemetry.wandb", "no key for Weights & Biases was found", hint=hint)


def wandb_mode(config: WandbConfig) -> str:
    """The config's mode, else the environment's, else online. Raises UserError."""
    if config.mode is not None:
        return config.mode
    mode = os.environ.get("WANDB_MODE") or "online"
    if mode not in MODES:
        hint = "or set telemetry.wandb.mode, which wins"
        raise UserError.single("WANDB_MODE", f"must be one of {', '.join(MODES)}", value=mode, hint=hint)
    return mode


def _has_key() -> bool:
    """False only where wandb would have to ask for a key: its own settings files may name another server and a key."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    return _in_netrc() or any("api_key" in text or "base_url" in text for text in _settings())


def _in_netrc() -> bool:
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc or DEFAULT_HOST
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if path and netrc.netrc(Path(path).expanduser()).authenticators(host) is not None:
                return True
        except (OSError, RuntimeError, netrc.NetrcParseError):
            continue  # there is none, or wandb can't read it either
    return False


def _settings() -> list[str]:
    directory = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    texts: list[str] = []
    for path in (Path(directory) / "settings", Path("wandb/settings")):
        try:
            texts.append(path.expanduser().read_text(encoding="utf-8"))
        except (OSError, RuntimeError, ValueError):
            continue
    return texts
