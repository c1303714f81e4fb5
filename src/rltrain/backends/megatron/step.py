"""One optimizer step: micro-batches through Megatron's schedule, a common decision to skip, the update."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import finalize_model_grads
from torch import Tensor

from rltrain.algorithms.objective import LossOutput, PairColumns, PolicyObjective
from rltrain.backends.megatron.kept import KeptStates
from rltrain.backends.megatron.micro_batch import MicroBatch, micro_batches_of
from rltrain.backends.megatron.optimizer import learning_rate
from rltrain.backends.megatron.passes import forward_backward, scored
from rltrain.backends.megatron.trainable import Trainable
from rltrain.config.model import OptimizerConfig
from rltrain.data.packing import gather
from rltrain.types.batch import OptimizerStep, PackedRows, Ragged, RolloutBatch
from rltrain.types.metrics import Max, Mean, Metric


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
        config_of_all: Any = trainable.chunks[0].config
        config_of_all.finalize_model_grads_func = _finish_gradients
        config_of_all.grad_scale_func = None

    def resume(self, num_done: int) -> None:
        """Goes on after so many updates, with the moments that they left."""
        self.num_done = num_done
        KeptStates(self._parts.optimizer).set_updates(num_done)

    def run(self, batch: RolloutBatch, step: OptimizerStep, *, rank: int) -> dict[str, Metric]:
        """One update and this rank's metrics.

        Those of the whole step come from rank 0, losses and what else belongs to samples from one of the ranks that
        share these.

        Without trainable tokens, or with a gradient that isn't finite on any rank, all ranks skip: weights, moments and
        learning rate stay.
        """
        rate = learning_rate(self._config, self.num_done, total_updates=self._total_updates)
        if step.num_loss_tokens == 0:
            return _step_metrics(rank, rate, skipped=True)
        parts = self._parts
        mine = micro_batches_of(batch, step, parts)
        outputs = self._backward(mine, num_loss_tokens=step.num_loss_tokens)
        finite = self._is_finite()
        norm = self._update(rate) if finite else float("nan")
        metrics = _reduced(outputs) | _packing(mine) if parts.place.reports else {}
        return metrics | _step_metrics(rank, rate, skipped=not finite, norm=norm, num_tokens=step.num_loss_tokens)

    def _backward(self, micro_batches: list[MicroBatch], *, num_loss_tokens: int) -> list[LossOutput]:
        parts = self._parts
        for chunk in parts.wrapped:
            chunk.zero_grad_buffer()
        parts.optimizer.zero_grad()
        outputs: list[LossOutput] = []

        def loss(hidden: Tensor, micro_batch: MicroBatch) -> Tensor:
            output = self._loss(hidden, micro_batch)
            outputs.append(LossOutput(output.total.detach(), output.metric_sums, output.metric_maxima))
            # Divided here, once, by the tokens of all ranks and micro-batches; nothing after it divides again.
            return output.total / num_loss_tokens

        forward_backward(parts, micro_batches, loss)
        return outputs

    def _loss(self, hidden: Tensor, micro_batch: MicroBatch) -> LossOutput:
        logprobs_P, entropy_P = scored(self._parts, hidden, micro_batch, temperature=self._temperature)
        columns = pair_columns(micro_batch.batch, micro_batch.rows, self._parts.device)
        return self._objective(logprobs_P, entropy_P, columns)

    def _is_finite(self) -> bool:
        """The same answer on every rank."""
        buffers = [
            buffer for chunk in self._parts.wrapped for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers)
        ]
        norms = [torch.linalg.vector_norm(buffer.grad_data) for buffer in buffers]  # none where all are frozen
        bad = (~torch.isfinite(torch.stack([*norms, torch.zeros((), device=self._parts.device)])).all()).float()
        if dist.get_world_size() > 1:
            dist.all_reduce(bad, dist.ReduceOp.MAX)
        return not bool(bad)

    def _update(self, rate: float) -> float:
        for group in self._parts.optimizer.param_groups:
            group["lr"] = rate
        _, norm, _ = self._parts.optimizer.step()
        self.num_done += 1
        return float(norm)


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


def _packing(micro_batches: list[MicroBatch]) -> dict[str, Metric]:
    tokens = sum(int(one.batch.total_lengths_B[list(one.numbers)].sum()) for one in micro_batches)
    return {"packing/rows_per_token": Mean(sum(one.num_rows for one in micro_batches), tokens)}


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
