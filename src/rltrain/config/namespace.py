"""`Args`: the validated config as a typed, read-only Namespace (`args.rollout.temperature`)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.checkpoint import CheckpointConfig
from rltrain.config.cluster import ClusterConfig
from rltrain.config.data import DataConfig
from rltrain.config.evaluation import EvalConfig
from rltrain.config.model import RoleConfig
from rltrain.config.profile import ProfileConfig
from rltrain.config.reward import RewardConfig
from rltrain.config.rollout import RolloutConfig
from rltrain.config.run import RunConfig
from rltrain.config.telemetry import TelemetryConfig
from rltrain.config.tree import Config
from rltrain.config.weight_sync import WeightSyncConfig


class Args(argparse.Namespace):
    """Sections of the config by name. What a run learns (ranks, addresses, paths) lives elsewhere, never here."""

    run: RunConfig
    cluster: ClusterConfig
    data: DataConfig
    reward: RewardConfig
    rollout: RolloutConfig
    actor: RoleConfig
    algorithm: AlgorithmConfig
    weight_sync: WeightSyncConfig
    eval: EvalConfig | None
    checkpoint: CheckpointConfig
    telemetry: TelemetryConfig
    profile: ProfileConfig | None
    config_path: Path
    """The file that was loaded, absolute."""

    def __init__(self, config: Config, *, config_path: Path) -> None:
        sections = {name: getattr(config, name) for name in type(config).model_fields}
        self.__dict__.update(sections, config_path=config_path)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"args.{name} is read-only; change the config file or pass an override")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"args.{name} is read-only")

    def config(self) -> Config:
        """The sections as one tree again, for dumping."""
        return Config(**{name: getattr(self, name) for name in Config.model_fields})
