"""What a training worker is made from. The driver imports this module: it loads neither torch nor Megatron."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rltrain.config.algorithm import AlgorithmConfig
from rltrain.config.model import RoleConfig
from rltrain.config.profile import ProfileConfig
from rltrain.config.weight_sync import WeightSyncConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStart:
    """A saved step that a role goes on from."""

    directory: Path
    """Of the role, with its pieces."""
    key: str
    """The option that names it, for errors."""
    moments: bool
    """The optimizer's moments and the place in the schedule, too; else both start anew."""
    num_updates: int
    """That the step had behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSetup:
    role: RoleConfig
    algorithm: AlgorithmConfig
    weight_sync: WeightSyncConfig
    temperature: float
    """The rollout's: log-probs are of logits over this."""
    seed: int
    total_updates: int
    """Optimizer steps of the whole run, for the schedule's end."""
    deterministic: bool
    device: str
    """`cpu` or `cuda`."""
    needs_reference: bool
    reference_path: Path | None
    """The actor's own start where None."""
    bucket_bytes: int = 256 * 2**20
    """Of a weight sync, where the config doesn't say."""
    shares_gpu: bool = False
    """An engine runs on this rank's GPU: weights go to it within the GPU's memory."""
    yields_memory: bool = False
    """Gives GPU memory that it doesn't hold tensors in back after each call, for an engine that wakes up."""
    start: SavedStart | None = None
    profile: ProfileConfig | None = None
    profile_directory: Path = Path("profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    pid: int
    device: str
    num_parameters: int
