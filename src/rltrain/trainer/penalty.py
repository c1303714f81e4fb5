"""The KL to the reference as a part of the reward."""

from __future__ import annotations

import numpy as np

from rltrain.config.algorithm import ReferenceKL
from rltrain.types.batch import Ragged, RolloutBatch


def kl_penalties(batch: RolloutBatch, kl: ReferenceKL) -> list[float]:
    """Coefficient times the estimated KL summed over each response's trainable tokens [B].

    Needs `old_logprobs` and `reference_logprobs`. Masked tokens, NaN included, count nothing.
    """
    import torch  # here, since the driver needs it for nothing else

    from rltrain.algorithms.kl import estimate

    assert batch.old_logprobs is not None and batch.reference_logprobs is not None
    old, reference = (torch.tensor(column.values) for column in (batch.old_logprobs, batch.reference_logprobs))
    kl_tokens = np.where(batch.loss_mask.values, estimate(old, reference, kind=kl.kind).numpy(), 0.0)
    return [kl.coefficient * float(value) for value in Ragged(kl_tokens, batch.loss_mask.offsets).sums()]
