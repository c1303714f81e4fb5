"""The engine on a GPU: weights through CUDA's IPC handles, sleep and wake around a sync."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from rltrain.backends.vllm.environment import engine_environment
from rltrain.backends.vllm.setup import EngineSetup
from rltrain.types.generation import GenerateRequest, Sampling
from rltrain.weight_sync.device_slots import DeviceSlot
from rltrain.weight_sync.sender import BucketSender, tensor_spec

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

T = TypeVar("T")
MIB = 2**20
VOCABULARY = 8192
CACHE_BYTES = 2048 * MIB
CANARY = np.arange(3, 60, dtype=np.int32)
PROMPTS = [[1 + place, 5, 7, 11, 200 + place] for place in range(5)]


class Loop:
    """A bf16 model on the GPU in the trainer's part, and an engine that sleeps."""

    def __init__(self, path: Path) -> None:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        from rltrain.backends.vllm.engine import VllmEngine

        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8,
            num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=512,
            tie_word_embeddings=True,
        )  # fmt: skip
        with torch.device("cuda"):
            self.model = Qwen3ForCausalLM(config).bfloat16().eval()
        config.architectures = ["Qwen3ForCausalLM"]
        config.save_pretrained(path)
        self.loop = asyncio.new_event_loop()
        self.engine = VllmEngine(
            EngineSetup(
                model_path=path, dtype="bfloat16", device="cuda", random_init=True, context_length=128,
                kv_cache_bytes=CACHE_BYTES, max_sequences=64, tensor_parallel=1, vocab_limit=VOCABULARY, seed=1,
                deterministic=False, gpu_share=0.1,
                sleeps=True, arguments={"enforce_eager": True},
            )
        )  # fmt: skip
        self.run(self.engine.start())
        specs = [tensor_spec(name, tensor) for name, tensor in self.tensors()]
        self.sender = BucketSender(specs, self.tensors, 64 * MIB, make_slot=DeviceSlot)
        self.run(self.engine.attach_weights(self.sender.plan, self.sender.slot_paths()))
        self.version = 0

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, parameter.detach()) for name, parameter in self.model.named_parameters())

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for _, tensor in self.tensors())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def load(self, indices: Sequence[int]) -> None:
        """Some of a sync's buckets, their checksums compared."""
        for index in indices:
            sent = self.sender.write(index, verify=True)
            assert self.run(self.engine.load_bucket(index, version=self.version, verify=True)) == sent

    def sync(self) -> None:
        self.version += 1
        self.load(range(len(self.sender.plan.buckets)))

    def greedy(self) -> list[list[int]]:
        requests = [
            GenerateRequest(
                request_id=f"r{self.version}-{place}",
                prompt_ids=np.asarray(prompt, np.int32),
                sampling=Sampling(n=1, max_tokens=24, temperature=0.0),
            )
            for place, prompt in enumerate(PROMPTS)
        ]
        results = self.run(self.engine.generate(requests, admit_together=True))
        return [result.completions[0].token_ids.tolist() for result in results]

    def difference(self) -> float:
        """Mean of the absolute differences between the engine's log-probs of the canary and the model's."""
        ids = torch.from_numpy(CANARY).long().cuda()
        with torch.no_grad():
            scores = self.model(ids[None]).logits[0, :-1].float().log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        return float(np.abs(scores.cpu().numpy() - self.run(self.engine.score(CANARY))).mean())

    def perturb(self, seed: int) -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)

    def close(self) -> None:
        self.run(self.engine.close())
        self.loop.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Loop]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine_environment(device="cuda").items():
            patch.setenv(name, value)
        found = Loop(tmp_path_factory.mktemp("qwen3"))
        try:
            found.sync()
            yield found
        finally:
            found.close()


def used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


class Peak:
    """Most GPU memory that anyone used while it was open."""

    def __enter__(self) -> Peak:
        self.bytes = used_bytes()
        self._open = True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self.bytes = max(self.bytes, used_bytes())
            time.sleep(0.0005)

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()


def test_wsy_05_synced_weights_are_the_ones_it_computes_with(pair: Loop) -> None:
    """Eight layers of random bf16 weights: two implementations differ by 0.015 in the mean."""
    assert pair.difference() <= 0.03
    pair.perturb(1)
    assert pair.difference() > 0.05
    pair.sync()
    assert pair.difference() <= 0.03


def test_wsy_02_greedy_tokens_are_the_same_after_sleep_wake_and_sync(pair: Loop) -> None:
    pair.sync()
    before = pair.greedy()
    for _ in range(3):
        pair.run(pair.engine.sleep())
        pair.sync()
        assert pair.greedy() == before


def test_wsy_04_what_is_synced_into_a_sleeping_engine_survives_its_waking(pair: Loop) -> None:
    """The weights grow with every change, and with them what two implementations differ by in bf16."""
    for seed in range(2, 5):
        pair.perturb(seed)
        stale = pair.difference()
        pair.run(pair.engine.sleep())
        pair.sync()
        assert pair.difference() <= 0.1 < 0.5 < stale


def test_a_sleeping_engine_refuses_to_generate(pair: Loop) -> None:
    from rltrain.types.errors import RunError

    pair.run(pair.engine.sleep())
    with pytest.raises(RunError, match="it sleeps until the next weight sync"):
        pair.greedy()
    pair.sync()
    assert pair.greedy()


def test_off_04_a_sync_takes_weights_and_a_bucket_while_the_cache_sleeps(pair: Loop) -> None:
    awake = used_bytes()
    pair.run(pair.engine.sleep())
    asleep = used_bytes()
    assert awake - asleep >= 0.95 * (CACHE_BYTES + pair.weight_bytes)
    last = len(pair.sender.plan.buckets) - 1
    assert last >= 3
    pair.version += 1
    with Peak() as peak:
        pair.load(range(last))
    assert peak.bytes - asleep <= 1.2 * pair.weight_bytes + 2 * 64 * MIB  # 2: one bucket, copied for layers it cuts
    pair.load([last])
    assert used_bytes() - asleep >= CACHE_BYTES
    assert pair.greedy()
