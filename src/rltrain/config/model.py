"""`actor:` (and later `critic:`, `teacher:`): one model with its layout and its optimizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from rltrain.config.section import Section


def _compiles(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


Pattern = Annotated[str, AfterValidator(_compiles)]


class ModelConfig(Section):
    path: Path
    """A Hugging Face model directory: `config.json`, the tokenizer and, unless `init: random`, safetensors."""
    init: Literal["pretrained", "random"] = "pretrained"
    """Load the weights, or draw them (seeded by `run.seed`, normal with the config's `initializer_range`)."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the weights in training and generation; masters, gradients' sums and moments are fp32."""


class ParallelConfig(Section):
    """How the trainer's ranks share the work: there are `data` x `tensor` x `pipeline` x `context` of them."""

    data: int = Field(default=1, ge=1, le=4096)
    """Copies of the model, each with its share of the samples."""
    tensor: int = Field(default=1, ge=1, le=4096)
    """Ranks that each layer's matrices and the vocabulary are split over."""
    sequence: bool = False
    """Split what lies between those matrices (norms, residual stream) by tokens over the tensor ranks."""
    pipeline: int = Field(default=1, ge=1, le=4096)
    """Stages that the layers are split over."""
    virtual_pipeline: int = Field(default=1, ge=1, le=4096)
    """Pieces that each stage's layers come in: above 1, stages take turns piece by piece (interleaved schedule)."""
    first_stage_layers: int | None = Field(default=None, ge=1, le=4096)
    """Layers of the first stage, which also has the embedding; an equal share when left out."""
    last_stage_layers: int | None = Field(default=None, ge=1, le=4096)
    """Layers of the last stage, which also has the output layer; an equal share when left out."""
    context: int = Field(default=1, ge=1, le=4096)
    """Ranks that the tokens of every sequence are split over."""
    expert: int = Field(default=1, ge=1, le=4096)
    """Ranks that the experts of a layer are split over; they are ranks of the tensor, context and data parallelism."""
    expert_tensor: int | None = Field(default=None, ge=1, le=4096)
    """Ranks that each expert's matrices are split over; as many as `tensor` when left out."""
    expert_dispatch: Literal["alltoall", "allgather"] = "alltoall"
    """How tokens get to their experts: each to its own ranks, or all to all ranks, with equally many rows on each."""
    shard_optimizer: bool = False
    """Split masters and moments over the data and context ranks (Megatron's distributed optimizer)."""
    overlap_grad_reduce: bool = False
    """Sum gradients over ranks while the backward pass still runs."""
    overlap_param_gather: bool = False
    """Collect updated weights while the next forward pass already runs; needs `shard_optimizer` and
    `overlap_grad_reduce`."""

    @property
    def model_size(self) -> int:
        """Ranks that hold one copy of the model, or one copy's share of the tokens."""
        return self.tensor * self.pipeline * self.context

    @property
    def world_size(self) -> int:
        return self.data * self.model_size

    @property
    def micro_batch_multiple(self) -> int:
        """What the number of micro-batches must divide by."""
        return self.pipeline if self.virtual_pipeline > 1 else 1

    @property
    def experts_tensor(self) -> int:
        return self.tensor if self.expert_tensor is None else self.expert_tensor


class NoRecompute(Section):
    kind: Literal["none"] = "none"


class FullRecompute(Section):
    """Only the input of every few layers is kept; the backward pass computes the rest again."""

    kind: Literal["full"] = "full"
    layers: int = Field(default=1, ge=1, le=4096)
    """Layers that are computed again together."""


class SelectiveRecompute(Section):
    """Named parts of every layer are computed again in the backward pass (Korthikanti et al. 2022)."""

    kind: Literal["selective"] = "selective"
    modules: tuple[Literal["core_attn", "mlp"], ...] = Field(default=("core_attn",), min_length=1)
    """`core_attn` is all of attention but its projections; `mlp` is of dense layers."""


Recompute = Annotated[NoRecompute | FullRecompute | SelectiveRecompute, Field(discriminator="kind")]


class ConstantSchedule(Section):
    kind: Literal["constant"] = "constant"


class DecaySchedule(Section):
    min_lr: float = Field(default=0.0, ge=0, le=1)
    """Learning rate at the end of the decay."""
    decay_steps: int | None = Field(default=None, ge=1, le=10**15)
    """Optimizer step at which the decay ends, counted from the run's start (warm-up included); all of the run's when
    left out."""


class LinearSchedule(DecaySchedule):
    kind: Literal["linear"] = "linear"


class CosineSchedule(DecaySchedule):
    kind: Literal["cosine"] = "cosine"


Schedule = Annotated[ConstantSchedule | LinearSchedule | CosineSchedule, Field(discriminator="kind")]


class OptimizerConfig(Section):
    """AdamW (Loshchilov & Hutter 2019)."""

    learning_rate: float = Field(ge=0, le=1)
    """Highest learning rate."""
    warmup_steps: int = Field(default=0, ge=0, le=10**15)
    """Optimizer steps over which the rate rises linearly to `learning_rate`."""
    schedule: Schedule = ConstantSchedule()
    """Course of the rate after warm-up."""
    beta1: float = Field(default=0.9, ge=0, le=0.999999)
    beta2: float = Field(default=0.999, ge=0, le=0.999999)
    epsilon: float = Field(default=1e-8, ge=1e-30, le=1)
    weight_decay: float = Field(default=0.0, ge=0, le=100)
    """Decoupled decay of matrices (not of norms and biases)."""
    clip_grad: float | None = Field(default=1.0, ge=1e-9, le=1e9)
    """Largest global gradient norm; null clips nothing."""
    offload: bool = False
    """Keep moments in host memory: 8 bytes a parameter less on the GPU, for the time to bring them for each update."""


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
    recompute: Recompute = NoRecompute()
    """Activations that are computed a second time instead of kept: less memory, more time."""
    optimizer: OptimizerConfig
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads a rank computes with; the cores shared by the ranks when left out (CPU only)."""
    tokens_per_micro_batch: int = Field(default=16384, ge=1, le=2**24)
    """Most tokens packed into one forward and backward pass; one sample must fit."""
    micro_batches: Literal["first_fit", "flops"] = "first_fit"
    """How samples are packed: into as few micro-batches as first fit finds, or into as many of about the same cost."""
    train_only: tuple[Pattern, ...] = ()
    """Regular expressions of Hugging Face tensor names: train what one of them finds, and nothing else."""
    freeze: tuple[Pattern, ...] = ()
    """Regular expressions of Hugging Face tensor names: don't train what one of them finds."""
    share_prompts: bool = True
    """Compute the prompt that samples of a micro-batch have in common once; the result is the same."""
    megatron: MegatronOverrides = MegatronOverrides()
