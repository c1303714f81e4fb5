"""A real engine on the loop of a test, a model that transformers computes too, and the way between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from rltrain.backends.vllm.environment import engine_environment
from rltrain.backends.vllm.setup import EngineInfo, EngineSetup
from rltrain.types.generation import GenerateRequest, GenerateResult, Sampling
from rltrain.types.sample import Floats, Ids
from rltrain.weight_sync.sender import BucketSender, tensor_spec

T = TypeVar("T")

CONTEXT = 64
TOLERANCE = 1e-4
"""Of fp32 log-probs, two implementations apart; 1e-5 was measured."""


def engine_setup(path: Path, **changes: Any) -> EngineSetup:
    fields: dict[str, Any] = {
        "model_path": path,
        "dtype": "float32",
        "device": "cpu",
        "random_init": True,
        "context_length": CONTEXT,
        "kv_cache_bytes": 64 * 2**20,
        "max_sequences": 64,
        "tensor_parallel": 1,
        "vocab_limit": 512,
        "seed": 1,
        "deterministic": False,
        "arguments": {},
    }
    return EngineSetup(**(fields | changes))


class Reference:
    """A transformers model in fp32 that takes the trainer's part."""

    def __init__(self, model: Any) -> None:
        self.model = model.float().eval()

    def save_config(self, path: Path) -> None:
        """No weights: the first sync brings them."""
        self.model.config.architectures = [type(self.model).__name__]
        self.model.config.save_pretrained(path)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, parameter.detach()) for name, parameter in self.model.named_parameters())

    def sender(self, *, bucket_bytes: int = 2**28, without: str | None = None) -> BucketSender:
        def tensors() -> Iterator[tuple[str, torch.Tensor]]:
            return ((name, tensor) for name, tensor in self.tensors() if name != without)

        return BucketSender([tensor_spec(name, tensor) for name, tensor in tensors()], tensors, bucket_bytes)

    def perturb(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)

    def logprobs(self, ids: Sequence[int], *, temperature: float = 1.0) -> Floats:
        """Of `ids[1:]`."""
        with torch.no_grad():
            logits = self.model(torch.tensor([list(ids)])).logits[0, :-1].float() / temperature
        scores = logits.log_softmax(-1).gather(-1, torch.tensor(list(ids))[1:, None])
        return scores[:, 0].numpy()


class RunningEngine:
    """An engine with the event loop that it lives on."""

    def __init__(self, setup: EngineSetup, reference: Reference) -> None:
        from rltrain.backends.vllm.engine import VllmEngine

        self.loop = asyncio.new_event_loop()
        self.engine = VllmEngine(setup)
        self.reference = reference
        self.info: EngineInfo = self.run(self.engine.start())
        self.version = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def sync(self, sender: BucketSender | None = None) -> None:
        """Brings the reference's weights over, bytes compared."""
        sender = sender or self.reference.sender()
        self.run(self.engine.attach_weights(sender.plan, sender.slot_paths()))
        self.version += 1
        for index in range(len(sender.plan.buckets)):
            sent = sender.write(index, verify=True)
            assert self.run(self.engine.load_bucket(index, version=self.version, verify=True)) == sent
        sender.close()

    def generate(
        self, prompts: Sequence[Sequence[int]], *, together: bool = False, **sampling: Any
    ) -> list[GenerateResult]:
        fields: dict[str, Any] = {"n": 1, "max_tokens": 8, "temperature": 1.0} | sampling
        requests = [
            GenerateRequest(
                request_id=f"r{place}", prompt_ids=np.asarray(prompt, np.int32), sampling=Sampling(**fields)
            )
            for place, prompt in enumerate(prompts)
        ]
        return self.run(self.engine.generate(requests, admit_together=together))

    def score(self, ids: Ids) -> Floats:
        return self.run(self.engine.score(ids))

    def close(self) -> None:
        self.run(self.engine.close())
        self.loop.close()


@contextmanager
def running_engine(setup: EngineSetup, reference: Reference) -> Generator[RunningEngine]:
    """With vLLM's variables set before it is imported, and unset afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine_environment(device="cpu", threads=1).items():
            patch.setenv(name, value)
        engine = RunningEngine(setup, reference)
        try:
            yield engine
        finally:
            engine.close()
