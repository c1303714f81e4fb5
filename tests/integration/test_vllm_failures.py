"""An untied model with a tokenizer, ids beyond it, and what happens when processes are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from rltrain.rollout.groups import sample_group
from rltrain.types.sample import FinishReason, Prompt, Status
from tests.integration.vllm_setup import TOLERANCE, Reference, RunningEngine, engine_setup, running_engine

TOKENIZER = Path(__file__).parents[2] / "examples" / "tiny-qwen3"
VOCAB = 512
PROMPT = [3, 4, 5]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    Reference(tiny_llama()).save_config(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, path)
    return path


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Generator[RunningEngine]:
    with running_engine(engine_setup(model_path, stop_texts=True), Reference(tiny_llama())) as running:
        running.sync()
        yield running


def tiny_llama() -> torch.nn.Module:
    """Untied, with more embedding rows than the tokenizer has ids."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=128,
            tie_word_embeddings=False,
            initializer_range=0.1,
        )
    )


def test_an_untied_head_is_synced(engine: RunningEngine) -> None:
    ids = np.arange(3, 40, dtype=np.int32)
    for seed in (1, 2):
        engine.reference.perturb(seed)
        engine.sync()
        assert np.abs(engine.score(ids) - engine.reference.logprobs(ids.tolist())).max() <= TOLERANCE


def test_a_stop_text_ends_a_response_and_its_tokens_stay(engine: RunningEngine) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    (greedy,) = engine.generate([PROMPT], temperature=0.0, max_tokens=30)
    ids = greedy.completions[0].token_ids.tolist()
    texts = [tokenizer.decode([token]) for token in ids]
    place = next(place for place, text in enumerate(texts) if text.strip() and text.isascii())
    (stopped,) = engine.generate([PROMPT], temperature=0.0, max_tokens=30, stop=(texts[place],))
    assert stopped.completions[0].finish_reason is FinishReason.STOP
    assert stopped.completions[0].token_ids.tolist() == ids[: place + 1]


def test_tok_09_an_id_beyond_the_tokenizer_is_flagged(engine: RunningEngine) -> None:
    """The head is biased towards an id that has no token, by a weight that every hidden state points along."""
    limit = 300
    with torch.no_grad():
        engine.reference.model.lm_head.weight[VOCAB - 1] *= 200
    engine.sync()
    (result,) = engine.generate([PROMPT], n=8, max_tokens=20)
    prompt = Prompt(id="rows:0", token_ids=np.asarray(PROMPT, np.int32), content="text")
    group = sample_group("1/0", prompt, result=result, n=8, vocab_limit=limit)
    beyond = [bool((sample.response_ids >= limit).any()) for sample in group.samples]
    assert any(beyond)
    assert [sample.status is Status.INVALID_TOKEN for sample in group.samples] == beyond
    assert not any(sample.trainable for sample, flagged in zip(group.samples, beyond, strict=True) if flagged)


def test_the_engines_death_surfaces_in_what_is_under_way_and_afterwards(engine: RunningEngine) -> None:
    from vllm.v1.engine.exceptions import EngineDeadError

    engine.loop.call_later(0.2, os.kill, engine.info.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError):
        for _ in range(2000):
            engine.generate([PROMPT] * 16, n=4, max_tokens=60)
    with pytest.raises(EngineDeadError):
        engine.generate([PROMPT])
    with pytest.raises(EngineDeadError):
        engine.run(engine.engine.health())


def test_the_engines_death_is_told_while_a_call_waits_that_vllm_never_ends(model_path: Path) -> None:
    """Killed while it loads weights."""
    from vllm.v1.engine.exceptions import EngineDeadError

    async def killed_within_a_call() -> None:
        watching = asyncio.ensure_future(running.engine.watch())
        os.kill(running.info.pid, signal.SIGSTOP)
        loading = asyncio.ensure_future(running.engine.load_bucket(0, version=2, verify=False))
        await asyncio.sleep(0.2)
        assert not watching.done()
        os.kill(running.info.pid, signal.SIGKILL)
        try:
            await asyncio.wait_for(watching, 15)
        finally:
            loading.cancel()

    with running_engine(engine_setup(model_path), Reference(tiny_llama())) as running:
        running.sync()
        with pytest.raises(EngineDeadError):
            running.run(killed_within_a_call())


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.integration.vllm_setup import engine_setup
from rltrain.backends.vllm.engine import VllmEngine

async def main():
    engine = VllmEngine(engine_setup(Path(sys.argv[1])))
    print("engine", (await engine.start()).pid, flush=True)
    await asyncio.sleep(300)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_killed_owner_takes_its_engine_along(model_path: Path, tmp_path: Path) -> None:
    from rltrain.backends.vllm.environment import engine_environment

    script = tmp_path / "owner.py"
    script.write_text(OWNER, encoding="utf-8")
    environment = os.environ | engine_environment(device="cpu", threads=1)
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    owner = subprocess.Popen(
        [sys.executable, str(script), str(model_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid = next(int(line.split()[1]) for line in owner.stdout if line.startswith("engine "))
    assert is_alive(pid)
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)
    owner.stdout.close()


def is_alive(pid: int) -> bool:
    """A zombie that nobody has collected yet isn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
