"""One optimizer step: micro-batches through Megatron's schedule, a common decision to skip, the update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from rltrain.algorithms.objective import LossOutput, PairColumns, PolicyObjective
from rltrain.backends.megatron.logprobs import pair_logprobs
from rltrain.backends.megatron.model import HiddenStateModel, hidden_states
from rltrain.backends.megatron.optimizer import learning_rate
from rltrain.config.model import OptimizerConfig
from rltrain.data.packing import gather, pack
from rltrain.types.batch import OptimizerStep, PackedRows, Ragged, RolloutBatch
from rltrain.types.metrics import Max, Mean, Metric


@dataclass(frozen=True)
class Trainable:
    """A model with all that changes it."""

    model: HiddenStateModel
    wrapped: Any
    """The same model in Megatron's data parallelism."""
    optimizer: Any
    device: torch.device
    dtype: torch.dtype
    group: Any
    """Ranks that share the vocabulary."""


class UpdateStep:
    def __init__(
        self,
        trainable: Trainable,
        objective: PolicyObjective,
        config: OptimizerConfig,
        *,
        temperature: float,
        total_updates: int,
    ) -> None:
        self._parts, self._objective, self._config = trainable, objective, config
        self._temperature, self._total_updates = temperature, total_updates
        self.num_done = 0
        """Updates that weren't skipped: the schedule's clock."""
        trainable.model.config.finalize_model_grads_func = _finish_gradients
        trainable.model.config.grad_scale_func = None

    def run(self, batch: RolloutBatch, step: OptimizerStep, *, rank: int) -> dict[str, Metric]:
        """One update and this rank's metrics; those of the whole step come from rank 0.

        Without trainable tokens, or with a gradient that isn't finite on any rank, all ranks skip: weights, moments and
        learning rate stay.
        """
        rate = learning_rate(self._config, self.num_done, total_updates=self._total_updates)
        if step.num_loss_tokens == 0:
            return _step_metrics(rank, rate, skipped=True)
        outputs = self._backward(batch, step, rank)
        finite = self._is_finite()
        norm = self._update(rate) if finite else float("nan")
        metrics = _reduced(outputs)
        return metrics | _step_metrics(rank, rate, skipped=not finite, norm=norm, num_tokens=step.num_loss_tokens)

    def _backward(self, batch: RolloutBatch, step: OptimizerStep, rank: int) -> list[LossOutput]:
        parts = self._parts
        parts.wrapped.zero_grad_buffer()
        parts.optimizer.zero_grad()
        outputs: list[LossOutput] = []

        def forward(micro_batches: Iterator[tuple[int, ...]], model: Any) -> Any:
            rows = pack(batch, next(micro_batches))
            hidden = hidden_states(model, rows, device=parts.device, dtype=parts.dtype)

            def loss(hidden: Tensor) -> Any:
                output = self._loss(hidden, rows, batch)
                outputs.append(LossOutput(output.total.detach(), output.metric_sums, output.metric_maxima))
                # Divided here, once, by the tokens of all ranks and micro-batches; nothing after it divides again.
                return output.total / step.num_loss_tokens, torch.ones((), dtype=torch.int, device=parts.device), {}

            return hidden, loss

        micro_batches = step.micro_batches[rank]
        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(micro_batches),
            model=parts.wrapped,
            num_microbatches=len(micro_batches),
            seq_length=1,  # read by pipelines alone
            micro_batch_size=1,
            forward_only=False,
        )
        return outputs

    def _loss(self, hidden: Tensor, rows: PackedRows, batch: RolloutBatch) -> LossOutput:
        logprobs_P, entropy_P = scored(self._parts, hidden, rows, temperature=self._temperature)
        return self._objective(logprobs_P, entropy_P, pair_columns(batch, rows, self._parts.device))

    def _is_finite(self) -> bool:
        """The same answer on every rank."""
        buffers = [*self._parts.wrapped.buffers, *self._parts.wrapped.expert_parallel_buffers]
        norms = torch.stack([torch.linalg.vector_norm(buffer.grad_data) for buffer in buffers])
        bad = (~torch.isfinite(norms).all()).float()
        if dist.get_world_size() > 1:
            dist.all_reduce(bad, dist.ReduceOp.MAX)
        return not bool(bad)

    def _update(self, rate: float) -> float:
        for group in self._parts.optimizer.param_groups:
            group["lr"] = rate
        _, norm, _ = self._parts.optimizer.step()
        self.num_done += 1
        return float(norm)


def scored(parts: Trainable, hidden: Tensor, rows: PackedRows, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the rows' pairs [P]."""
    hidden_P = hidden.index_select(0, torch.from_numpy(rows.row_P).to(parts.device))
    targets_P = torch.from_numpy(rows.target_P).to(parts.device)
    return pair_logprobs(hidden_P, parts.model.head_weight, targets_P, temperature=temperature, group=parts.group)


def pair_columns(batch: RolloutBatch, rows: PackedRows, device: torch.device) -> PairColumns:
    def column(values: Ragged[Any]) -> Tensor:
        return torch.from_numpy(gather(values, rows)).to(device)

    return PairColumns(
        mask_P=column(batch.loss_mask),
        advantages_P=column(batch.advantages),
        rollout_logprobs_P=column(batch.rollout_logprobs),
        old_logprobs_P=None if batch.old_logprobs is None else column(batch.old_logprobs),
        reference_logprobs_P=None if batch.reference_logprobs is None else column(batch.reference_logprobs),
    )


def _finish_gradients(model: list[Any], _num_tokens: Any = None, **options: Any) -> None:
    """Sums over ranks; without a token count Megatron divides by nothing."""
    finalize_model_grads(model, None, **options)


def _reduced(outputs: list[LossOutput]) -> dict[str, Metric]:
    """Sums over micro-batches with one wait for the device."""
    first = outputs[0]
    sums = {name: torch.stack([output.metric_sums[name] for output in outputs]).sum(0) for name in first.metric_sums}
    maxima = {name: torch.stack([o.metric_maxima[name] for o in outputs]).max() for name in first.metric_maxima}
    flat = torch.cat([*sums.values(), *(value[None] for value in maxima.values())]).tolist()
    metrics: dict[str, Metric] = {name: Mean(flat[2 * i], flat[2 * i + 1]) for i, name in enumerate(sums)}
    return metrics | {name: Max(value) for name, value in zip(maxima, flat[2 * len(sums) :], strict=True)}


def _step_metrics(
    rank: int, rate: float, *, skipped: bool, norm: float = float("nan"), num_tokens: int = 0
) -> dict[str, Metric]:
    """What all ranks know alike, counted once: means over optimizer steps. There is no norm without a gradient."""
    if rank != 0:
        return {}
    return {
        "train/grad_norm": Mean(norm if num_tokens else 0.0, float(num_tokens > 0)),
        "train/lr": Mean(rate, 1),
        "train/skipped": Mean(float(skipped), 1),
    }
