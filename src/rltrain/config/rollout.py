"""`rollout:` engines, sampling and the size of a step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, field_validator

from rltrain.config.section import Seconds, Section

LEAST_TEMPERATURE = 0.01
"""vLLM raises a lower one, but for 0, to this; the trainer would score another distribution than was sampled."""
MOST_SAMPLES_PER_STEP = 2**22
"""The lower bits of a sample's seed count them."""
MOST_SAMPLES_PER_PROMPT = 16384
"""vLLM's limit on the responses to one request."""


class SamplingConfig(Section):
    """How tokens are drawn."""

    temperature: float = Field(default=1.0, ge=0, le=100)
    """Divides the logits; 0 is greedy (evaluation only), and the least above it is 0.01."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Smallest set of tokens with this probability; 1 keeps all."""
    top_k: int = Field(default=0, ge=0, le=2**31 - 1)
    """The k likeliest tokens; 0 keeps all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Tokens with at least this share of the likeliest token's probability; 0 keeps all."""
    max_tokens: int = Field(default=256, ge=1, le=2**24)
    """Longest response in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end a response (they stay part of it)."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end a response, besides every EOS id of the model's generation config."""
    ignore_eos: bool = False
    """Go on to `max_tokens` through EOS ids."""

    @field_validator("temperature")
    @classmethod
    def _engine_takes_it(cls, value: float) -> float:
        if 0 < value < LEAST_TEMPERATURE:
            raise ValueError(f"must be 0 or at least {LEAST_TEMPERATURE:g}: vLLM takes what lies between for that")
        return value


class RolloutConfig(SamplingConfig):
    prompts_per_step: int = Field(ge=1, le=MOST_SAMPLES_PER_STEP // 2)
    """Prompts drawn for one rollout."""
    samples_per_prompt: int = Field(ge=1, le=MOST_SAMPLES_PER_PROMPT)
    """Responses to each prompt, which make one group."""
    engines: int = Field(default=1, ge=1, le=1024)
    """vLLM engines, each in a process of its own. On a single GPU several share it: small models are held up by the
    engine's own work on a CPU core, which then runs on several."""
    tensor_parallel: int = Field(default=1, ge=1, le=1024)
    """GPUs an engine is split over."""
    context_length: int | None = Field(default=None, ge=2, le=2**24)
    """Longest prompt and response together; the model's own limit, or the data's if that is less, when left out."""
    kv_cache_bytes: int | None = Field(default=None, ge=2**20, le=2**42)
    """Memory of the KV cache of an engine; by default enough for a step's samples, but at most 1 GiB on a CPU and what
    trainer and model leave on a GPU that they share (vLLM's own share of a GPU where it has that to itself)."""
    sleep: Literal["auto", "always", "never"] = "auto"
    """Whether engines give up their GPU memory while the trainer works, on a GPU that they share; `auto` where the
    cache for a step's samples wouldn't fit beside the trainer otherwise."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads an engine computes with; half the cores, at least one, when left out (CPU only)."""
    timeout_s: Seconds = 1800.0
    """Longest a step's generation may take."""
    vllm: dict[str, JsonValue] = {}
    """Further arguments of vLLM's engine (`AsyncEngineArgs`), e.g. `enforce_eager: false`."""
