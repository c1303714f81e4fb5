"""A spec for tests of names and shapes."""

from __future__ import annotations

from pathlib import Path

from rltrain.types.model_spec import ModelSpec

QWEN2 = ModelSpec(
    path=Path("model"), family="qwen2", num_layers=2, hidden_size=6, num_heads=4, num_kv_heads=2, head_dim=3,
    intermediate_size=5, vocab_size=96, norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=None, max_positions=64,
    tied=False, qkv_bias=True, qk_norm=False, initializer_range=0.02, eos_ids=(1,),
)  # fmt: skip
