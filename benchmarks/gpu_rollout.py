"""Tokens a second of a bare vLLM engine on the work of benchmarks/gpu_step.yaml, with rltrain's engine arguments.

Usage: python benchmarks/gpu_rollout.py MODEL_DIRECTORY [KV_CACHE_BYTES]     (random weights; one JSON line)
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rltrain.backends.vllm.environment import engine_environment

PROMPTS, SAMPLES, TOKENS, PROMPT_TOKENS = 64, 8, 512, 150


async def measure(model: Path, cache_bytes: int) -> dict[str, Any]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(model),
            dtype="bfloat16",
            load_format="dummy",
            max_model_len=PROMPT_TOKENS + TOKENS,
            max_num_seqs=PROMPTS * SAMPLES,
            kv_cache_memory_bytes=cache_bytes,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            logprobs_mode="processed_logprobs",
        )
    )
    params = SamplingParams(
        n=SAMPLES,
        max_tokens=TOKENS,
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )

    async def one(number: int, round_: int) -> int:
        prompt: Any = {"prompt_token_ids": [100 + (number * 7 + i * 13 + round_) % 40000 for i in range(PROMPT_TOKENS)]}
        count = 0
        async for output in llm.generate(prompt, params, f"{round_}-{number}"):
            count += sum(len(part.token_ids) for part in output.outputs)
        return count

    rates: list[float] = []
    for round_ in range(4):
        start = time.perf_counter()
        counts = await asyncio.gather(*(one(number, round_) for number in range(PROMPTS)))
        rates.append(round(sum(counts) / (time.perf_counter() - start)))
    llm.shutdown()
    return {"model": model.name, "tokens_per_s": rates[1:], "first": rates[0]}


if __name__ == "__main__":
    os.environ.update(engine_environment(device="cuda"))
    found = asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60 * 2**30))
    print(json.dumps(found))
