"""The texts of the small config that tests start from."""

from __future__ import annotations

CONFIG = """\
run:
  steps: 10
data:
  sources: [{path: train.jsonl}]
  max_prompt_tokens: 16
reward:
  parts:
    digits: {kind: prefix_match}
rollout:
  prompts_per_step: 10
  samples_per_prompt: 8
  max_tokens: 4
actor:
  model: {path: model, init: random, dtype: float32}
  optimizer:
    learning_rate: 1e-3
eval:
  sets:
    greedy:
      sources: [{path: eval.jsonl}]
      max_prompt_tokens: 16
      sampling: {temperature: 0.0, max_tokens: 4}
"""

MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}

ROWS = "".join(f'{{"prompt": "{digit}=", "label": "{digit * 4}"}}\n' for digit in "1234567890")
"""As many as a step draws."""
