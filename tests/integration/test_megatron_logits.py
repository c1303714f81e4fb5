"""Logits of Megatron's model against transformers', each sequence alone and packed with others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.types.batch import RolloutBatch


def logits(worker: Any, batch: RolloutBatch, numbers: Sequence[int]) -> torch.Tensor:
    """Of every entry of the samples' sequences, [E, vocabulary]."""
    from rltrain.backends.megatron.micro_batch import MicroBatch
    from rltrain.backends.megatron.passes import collected

    def end(hidden: torch.Tensor, micro_batch: MicroBatch) -> torch.Tensor:
        return (hidden @ worker._parts.head().t())[micro_batch.rows.rows_E]

    return collected(worker._parts, [MicroBatch(batch, numbers, worker._parts)], end)[0]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_lgp_06_logits_are_those_of_transformers_packed_and_alone(tmp_path: Path, family: str, tied: bool) -> None:
    """Tolerance 1e-5: fp32 rounding of two implementations, on logits of up to about 5."""
    model = given.save_model(tmp_path, family, tied=tied)
    batch = given.make_batch()
    with given.worker(tmp_path) as worker:
        packed = logits(worker, batch, range(len(batch)))
        alone = torch.cat([logits(worker, batch, [number]) for number in range(len(batch))])
    with torch.no_grad():
        fed = [np.append(batch.prompt_ids[n], batch.response_ids[n][:-1]) for n in range(len(batch))]
        expected = torch.cat([model(torch.from_numpy(ids).long()[None]).logits[0] for ids in fed])
    assert expected.abs().max() > 1
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed, expected, atol=1e-5, rtol=0)
