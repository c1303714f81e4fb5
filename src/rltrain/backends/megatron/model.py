"""The transformer: Megatron's GPTModel up to the final norm; its output layer is applied by `logprobs.py`."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from rltrain.backends.megatron.modules import Layout, block_submodules, has_kernel, make_layout
from rltrain.backends.megatron.rotary import Rotary
from rltrain.types.batch import PackedRows
from rltrain.types.model_spec import ModelSpec


class HiddenStateModel(GPTModel):
    """Gives final hidden states instead of logits, so that [T, vocabulary] is never held."""

    def __init__(self, config: Any, spec: ModelSpec, *, device: torch.device) -> None:
        super().__init__(
            config,
            block_submodules(config),  # pyright: ignore[reportArgumentType]
            vocab_size=spec.vocab_size,
            max_sequence_length=spec.max_positions,
            position_embedding_type="none",  # pyright: ignore[reportArgumentType]
            share_embeddings_and_output_weights=spec.tied,
        )
        self.rotary = Rotary(spec, device=device)

    def forward(self, tokens_T: Tensor, positions_T: Tensor, layout: Layout) -> Tensor:  # pyright: ignore
        """Hidden states [T, hidden]."""
        embedded = self.embedding(input_ids=tokens_T[None], position_ids=None)
        layout.cosines, layout.sines = self.rotary(positions_T, dtype=embedded.dtype)
        hidden = self.decoder(
            hidden_states=embedded,
            attention_mask=None,
            packed_seq_params=layout,
        )
        return hidden.squeeze(1)

    @property
    def head_weight(self) -> Tensor:
        """This rank's rows of the output layer."""
        tied = self.share_embeddings_and_output_weights
        weight = self.shared_embedding_or_output_weight() if tied else self.output_layer.weight
        assert weight is not None
        return weight


def hidden_states(model: torch.nn.Module, rows: PackedRows, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Of a packed micro-batch [T, hidden]; `model` may be wrapped."""
    layout = make_layout(rows, device=device, kernel=has_kernel(device, dtype))
    tokens_T = torch.from_numpy(rows.tokens_T).to(device, torch.int64)
    return model(tokens_T, torch.from_numpy(rows.positions_T).to(device), layout)
