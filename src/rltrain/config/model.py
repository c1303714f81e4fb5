"""`actor:` (and later `critic:`, `teacher:`): one model with its layout and its optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from rltrain.config.section import Section


class ModelConfig(Section):
    path: Path
    """A Hugging Face model directory: `config.json`, the tokenizer and, unless `init: random`, safetensors."""
    init: Literal["pretrained", "random"] = "pretrained"
    """Load the weights, or draw them (seeded by `run.seed`, normal with the config's `initializer_range`)."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the weights in training and generation; masters, gradients' sums and moments are fp32."""


class ParallelConfig(Section):
    data: int = Field(default=1, ge=1)
    """Copies of the model, each with its share of the samples."""


class ConstantSchedule(Section):
    kind: Literal["constant"] = "constant"


class DecaySchedule(Section):
    min_lr: float = Field(default=0.0, ge=0)
    """Learning rate at the end of the decay."""
    decay_steps: int | None = Field(default=None, ge=1)
    """Optimizer step at which the decay ends, counted from the run's start (warm-up included); all of the run's when
    left out."""


class LinearSchedule(DecaySchedule):
    kind: Literal["linear"] = "linear"


class CosineSchedule(DecaySchedule):
    kind: Literal["cosine"] = "cosine"


Schedule = Annotated[ConstantSchedule | LinearSchedule | CosineSchedule, Field(discriminator="kind")]


class OptimizerConfig(Section):
    """AdamW (Loshchilov & Hutter 2019)."""

    learning_rate: float = Field(ge=0)
    """Highest learning rate."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the rate rises linearly to `learning_rate`."""
    schedule: Schedule = ConstantSchedule()
    """Course of the rate after warm-up."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay of matrices (not of norms and biases)."""
    clip_grad: float | None = Field(default=1.0, gt=0)
    """Largest global gradient norm; null clips nothing."""


class MegatronOverrides(Section):
    """Fields of Megatron-core's own dataclasses, checked against them."""

    transformer: dict[str, JsonValue] = {}
    """`TransformerConfig` fields."""
    optimizer: dict[str, JsonValue] = {}
    """`OptimizerConfig` fields."""
    ddp: dict[str, JsonValue] = {}
    """`DistributedDataParallelConfig` fields."""


class RoleConfig(Section):
    model: ModelConfig
    parallel: ParallelConfig = ParallelConfig()
    optimizer: OptimizerConfig
    threads: int | None = Field(default=None, ge=1)
    """CPU threads a rank computes with; the cores shared by the ranks when left out (CPU only)."""
    tokens_per_micro_batch: int = Field(default=16384, ge=1)
    """Most tokens packed into one forward and backward pass; one sample must fit."""
    megatron: MegatronOverrides = MegatronOverrides()
