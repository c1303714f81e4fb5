"""The transformer: Megatron's GPTModel up to the final norm; its output layer is applied by `logprobs.py`."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from rltrain.backends.megatron.convert.tensors import padded_vocab_size
from rltrain.backends.megatron.layer_specs import block_submodules
from rltrain.backends.megatron.modules import Layout
from rltrain.backends.megatron.rotary import Rotary
from rltrain.types.model_spec import ModelSpec


class HiddenStateModel(GPTModel):
    """Gives final hidden states instead of logits, so that [T, vocabulary] is never held.

    A pipeline's rank has some of the layers, in one or several of these: the first of all has the embedding, the last
    one the final norm and the output layer.
    """

    def __init__(
        self,
        config: Any,
        spec: ModelSpec,
        *,
        device: torch.device,
        first: bool = True,
        last: bool = True,
        vp_stage: int | None = None,
    ) -> None:
        super().__init__(
            config,
            block_submodules(config, spec, vp_stage=vp_stage),  # pyright: ignore[reportArgumentType]
            vocab_size=padded_vocab_size(spec.vocab_size, config.tensor_model_parallel_size),
            max_sequence_length=spec.max_positions,
            pre_process=first,
            post_process=last,
            position_embedding_type="none",  # pyright: ignore[reportArgumentType]
            share_embeddings_and_output_weights=spec.tied,
            vp_stage=vp_stage,
        )
        self.spec = spec
        self.rotary = Rotary(spec, device=device)

    def forward(self, tokens_T: Tensor, positions_T: Tensor, layout: Layout) -> Tensor:  # pyright: ignore
        """Hidden states [T, 1, hidden], or this rank's part of the rows where the tensor ranks have parts of them."""
        embedded = self.embedding(input_ids=tokens_T[None], position_ids=None) if self.pre_process else None
        if embedded is not None and self.spec.embedding_scale != 1:
            embedded = embedded * torch.tensor(self.spec.embedding_scale, dtype=embedded.dtype)  # rounded as it is
        if embedded is not None and torch.is_grad_enabled():
            embedded.requires_grad_()  # if frozen, too: recomputed layers and a stage's end want a graph below them
        layout.rotations = self.rotary(positions_T, dtype=self.config.params_dtype)
        return self.decoder(
            hidden_states=embedded,  # of a later stage, the schedule has set what the stage before gave
            attention_mask=None,
            packed_seq_params=layout,
        )

    @property
    def head_weight(self) -> Tensor:
        """This rank's rows of the output layer, with those that pad the vocabulary."""
        tied = self.share_embeddings_and_output_weights
        weight = self.shared_embedding_or_output_weight() if tied else self.output_layer.weight
        assert weight is not None
        return weight
