"""Multi-head latent attention (DeepSeek-V2, 2024) in Megatron's module, with positions of packed rows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.multi_latent_attention import MLASelfAttention
from torch import Tensor

from rltrain.backends.megatron.modules import Layout, VarlenAttention
from rltrain.backends.megatron.rotary import turned

if not isinstance(multi_latent_attention.TELinear, type):  # a stand-in that 0.16 takes for TransformerEngine
    multi_latent_attention.HAVE_TE = False


class LatentCore(VarlenAttention):
    """For values that are narrower than queries and keys, which attention kernels don't take."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
        narrow, wide = value.size(-1), query.size(-1)
        found = super().forward(query, key, F.pad(value, (0, wide - narrow)), *args, **options)
        return found.unflatten(-1, (-1, wide))[..., :narrow].flatten(-2)


class LatentAttention(MLASelfAttention):
    """Megatron's own turns by the place in the micro-batch, and loses part of a gradient: all heads share the keys'
    numbers that know positions, so what the heads of all tensor-parallel ranks say of them must be summed."""

    def get_query_key_value_tensors(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        hidden_states: Tensor,
        key_value_states: None = None,
        position_ids: None = None,
        packed_seq_params: Layout | None = None,
        inference_context: None = None,
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Query and key [T, 1, heads, query dim], value [T, 1, heads, value dim]."""
        assert packed_seq_params is not None
        (rotation,) = packed_seq_params.rotations
        config, heads = self.config, self.num_attention_heads_per_partition
        query = self._query(hidden_states).squeeze(1).unflatten(-1, (heads, -1))
        both = self._whole(self.linear_kv_down_proj, hidden_states, config.kv_lora_rank + config.qk_pos_emb_head_dim)
        latent, key_turned = both.split([config.kv_lora_rank, config.qk_pos_emb_head_dim], -1)
        norm: Any = self.kv_layernorm
        key_value, _ = self.linear_kv_up_proj(norm(self._own_rows(latent)))
        key_value = key_value.squeeze(1).unflatten(-1, (heads, -1))
        key, value = key_value.split([config.qk_head_dim, config.v_head_dim], -1)
        query, query_turned = query.split([config.qk_head_dim, config.qk_pos_emb_head_dim], -1)
        query_turned, key_turned = turned(query_turned, copy_to_tensor_model_parallel_region(key_turned), rotation)
        query = torch.cat([query, query_turned], -1)
        key = torch.cat([key, key_turned.expand(-1, heads, -1)], -1)
        return query[:, None], key[:, None], value[:, None], None, None

    def _query(self, hidden: Tensor) -> Tensor:
        if self.config.q_lora_rank is None:
            return self.linear_q_proj(hidden)[0]
        latent = self._whole(self.linear_q_down_proj, hidden, self.config.q_lora_rank)
        return self.linear_q_up_proj(self.q_layernorm(self._own_rows(latent)))[0]

    def _whole(self, projection: Any, hidden: Tensor, width: int) -> Tensor:
        """All rows and columns of what the tensor-parallel ranks have columns of."""
        found, _ = projection(hidden)
        return found if found.size(-1) == width else gather_from_tensor_model_parallel_region(found)

    def _own_rows(self, rows: Tensor) -> Tensor:
        return scatter_to_sequence_parallel_region(rows) if self.config.sequence_parallel else rows
