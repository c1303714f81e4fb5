"""The whole config as one tree; `load.py` reads it, `rules.py` checks what spans sections."""

from __future__ import annotations

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
from rltrain.config.section import Section
from rltrain.config.telemetry import TelemetryConfig
from rltrain.config.weight_sync import WeightSyncConfig


class Config(Section):
    run: RunConfig
    cluster: ClusterConfig = ClusterConfig()
    data: DataConfig
    reward: RewardConfig
    rollout: RolloutConfig
    actor: RoleConfig
    algorithm: AlgorithmConfig = AlgorithmConfig()
    weight_sync: WeightSyncConfig = WeightSyncConfig()
    eval: EvalConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    profile: ProfileConfig | None = None
