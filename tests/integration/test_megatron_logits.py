"""Logits of Megatron's model against transformers', each sequence alone and packed with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.integration.megatron_setup as given
from rltrain.data.packing import pack
from rltrain.types.batch import PackedRows


def logits(worker: Any, rows: PackedRows) -> torch.Tensor:
    """Of every entry of the sequences, [E, vocabulary]."""
    from rltrain.backends.megatron.model import hidden_states

    parts = worker._parts
    with torch.no_grad():
        hidden = hidden_states(parts.model, rows, device=parts.device, dtype=parts.dtype)
        return (hidden @ parts.model.head_weight.t())[rows.rows_E]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_lgp_06_logits_are_those_of_transformers_packed_and_alone(tmp_path: Path, family: str, tied: bool) -> None:
    """Tolerance 1e-5: fp32 rounding of two implementations, on logits of up to about 5."""
    model = given.save_model(tmp_path, family, tied=tied)
    batch = given.make_batch()
    with given.worker(tmp_path) as worker:
        packed = logits(worker, pack(batch, range(len(batch))))
        alone = torch.cat([logits(worker, pack(batch, [number])) for number in range(len(batch))])
    with torch.no_grad():
        fed = [np.append(batch.prompt_ids[n], batch.response_ids[n][:-1]) for n in range(len(batch))]
        expected = torch.cat([model(torch.from_numpy(ids).long()[None]).logits[0] for ids in fed])
    assert expected.abs().max() > 1
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed, expected, atol=1e-5, rtol=0)
