"""Micro-batches forward and backward through the model, by Megatron's schedule for the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from torch import Tensor

from rltrain.backends.megatron.logprobs import pair_logprobs
from rltrain.backends.megatron.micro_batch import MicroBatch
from rltrain.backends.megatron.trainable import Trainable
from rltrain.types.sample import Floats

T = TypeVar("T")


def forward_backward(
    parts: Trainable, micro_batches: Sequence[MicroBatch], loss: Callable[[Tensor, MicroBatch], Tensor]
) -> None:
    """Adds the losses' gradients to the buffers, over all ranks; `loss` gets final hidden states and gives a scalar."""

    def with_count(hidden: Tensor, micro_batch: MicroBatch) -> Any:
        # Megatron's schedule wants a count of tokens; nothing divides by it.
        return loss(hidden, micro_batch), torch.ones((), dtype=torch.int, device=parts.device), {}

    _run(parts, micro_batches, with_count, forward_only=False)


def logprobs(parts: Trainable, micro_batches: Sequence[MicroBatch], *, temperature: float) -> list[Floats]:
    """Of each micro-batch's pairs [P]; nothing on ranks that haven't the model's end."""

    def found(hidden: Tensor, micro_batch: MicroBatch) -> Floats:
        return scored(parts, hidden, micro_batch, temperature=temperature)[0].cpu().numpy()

    return collected(parts, micro_batches, found)


@torch.no_grad()
def collected(parts: Trainable, micro_batches: Sequence[MicroBatch], end: Callable[[Tensor, MicroBatch], T]) -> list[T]:
    """What `end` makes of each micro-batch's final hidden states; nothing on ranks that haven't the model's end."""

    def found(hidden: Tensor, micro_batch: MicroBatch, *, non_loss_data: bool) -> T:
        assert non_loss_data  # so Megatron calls it when it only collects
        return end(hidden, micro_batch)

    return _run(parts, micro_batches, found, forward_only=True)


def scored(parts: Trainable, hidden: Tensor, micro_batch: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs, which carry the graph, and entropies of all of the micro-batch's pairs [P], on every rank."""
    share, group = micro_batch.share, parts.place.tensor_group
    own = hidden.index_select(0, share.row_P)
    logprobs_P, entropy_P = pair_logprobs(
        own,
        parts.head(),
        share.target_P,
        temperature=temperature,
        group=group,
        vocab_size=parts.chunks[-1].spec.vocab_size,
    )
    return micro_batch.gathered(logprobs_P), micro_batch.gathered(entropy_P)


def _run(
    parts: Trainable, micro_batches: Sequence[MicroBatch], end: Callable[..., Any], *, forward_only: bool
) -> list[Any]:
    """What `end` gave for each micro-batch where the model ends; its order is theirs."""
    config: Any = parts.chunks[0].config

    def forward(iterator: Iterator[MicroBatch], model: Any) -> Any:
        micro_batch = next(iterator)
        share = micro_batch.share

        def ended(output: Tensor, **options: Any) -> Any:
            whole = gather_from_sequence_parallel_region(output, False) if config.sequence_parallel else output
            return end(whole.squeeze(1), micro_batch, **options)

        return model(share.tokens_T, share.positions_T, share.layout), ended

    iterators = [iter(micro_batches) for _ in parts.wrapped]
    several = len(iterators) > 1
    return get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iterators if several else iterators[0],
        model=list(parts.wrapped) if several else parts.wrapped[0],
        num_microbatches=len(micro_batches),
        seq_length=1,  # stages tell each other the shape of every micro-batch
        micro_batch_size=1,
        forward_only=forward_only,
        collect_non_loss_data=forward_only,
    )
