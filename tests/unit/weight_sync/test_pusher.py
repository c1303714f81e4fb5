from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from rltrain.config.weight_sync import WeightSyncConfig
from rltrain.types.errors import DeadlineExceeded, RunError
from rltrain.types.model_spec import ModelSpec
from rltrain.types.sample import Floats, Ids
from rltrain.types.weights import Canary, SyncPlan, SyncReport
from rltrain.weight_sync.checksum import checksum
from rltrain.weight_sync.pusher import WeightPusher
from rltrain.weight_sync.sender import BucketSender, placed_tensor, tensor_spec
from rltrain.weight_sync.sides import WeightsOffer
from rltrain.weight_sync.slots import AttachedSlot

SPEC = ModelSpec(
    path=Path("model"),
    family="qwen3",
    num_layers=1,
    hidden_size=4,
    num_heads=1,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=4,
    vocab_size=50,
    norm_epsilon=1e-6,
    rope_theta=1e4,
    rope_scaling=None,
    max_positions=64,
    tied=False,
    qkv_bias=False,
    qk_norm=False,
    initializer_range=0.02,
    eos_ids=(),
)


def scores(weights: dict[str, torch.Tensor], ids: Ids) -> Floats:
    """A number for each of `ids[1:]` that all weights enter."""
    total = sum(float(tensor.double().sum()) for tensor in weights.values())
    return (total * 1e-3 * (ids[1:] + 1)).astype(np.float32)


@dataclass
class Trainer:
    weights: dict[str, torch.Tensor]
    bucket_bytes: int
    events: list[str]
    sender: BucketSender | None = None
    delay_s: float = 0.0

    async def offer_weights(self) -> WeightsOffer:
        specs = [tensor_spec(name, tensor) for name, tensor in self.weights.items()]
        self.sender = BucketSender(specs, lambda: iter(self.weights.items()), self.bucket_bytes)
        return WeightsOffer(self.sender.plan, tuple(self.sender.slot_paths()))

    async def write_bucket(self, index: int, *, verify: bool) -> int | None:
        assert self.sender is not None
        await asyncio.sleep(self.delay_s)
        self.events.append(f"write {index}")
        return self.sender.write(index, verify=verify)

    async def score(self, token_ids: Ids) -> Floats:
        return scores(self.weights, token_ids)


@dataclass
class Engine:
    name: str
    events: list[str]
    weights: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    versions: list[int] = field(default_factory=list[int])
    refusal: str | None = None
    delay_s: float = 0.0
    skipped: str | None = None
    """A tensor that the engine forgets to load."""
    corrupt: bool = False
    failure: Exception | None = None

    async def attach_weights(self, plan: SyncPlan, slots: Sequence[str]) -> None:
        self.plan = plan
        self.slots = [AttachedSlot(path) for path in slots]

    async def load_bucket(self, index: int, *, version: int, verify: bool) -> int | None:
        await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        self.events.append(f"{self.name} loads {index}")
        slot, bucket = self.slots[index % len(self.slots)], self.plan.buckets[index]
        found = checksum(slot.view(bucket.num_bytes)) if verify else None
        for placed in bucket.tensors:
            if placed.spec.name != self.skipped:
                self.weights[placed.spec.name] = placed_tensor(slot.tensor, placed).clone()
        if index == len(self.plan.buckets) - 1:
            self.versions.append(version)
        return found + 1 if self.corrupt and found is not None else found

    async def refuse(self, reason: str) -> None:
        self.refusal = reason

    async def score(self, token_ids: Ids) -> Floats:
        return scores(self.weights, token_ids)


@dataclass
class World:
    trainer: Trainer
    engines: list[Engine]
    events: list[str]
    config: WeightSyncConfig
    canaries: list[Canary] = field(default_factory=list[Canary])

    def push(self, count: int = 1) -> list[SyncReport]:
        async def run() -> list[SyncReport]:
            pusher = WeightPusher(
                self.trainer, self.engines, config=self.config, model=SPEC, context_length=SPEC.max_positions
            )
            await pusher.connect()
            reports: list[SyncReport] = []
            for version in range(1, count + 1):
                reports.append(await pusher.push(version=version))
                self.canaries.append(await pusher.check())
                for tensor in self.trainer.weights.values():
                    tensor += 1
            return reports

        return asyncio.run(run())


def make_world(bucket_bytes: int = 2**20) -> World:
    events: list[str] = []
    weights = {f"w{place}": torch.full((16,), float(place + 1)) for place in range(3)}
    engines = [Engine("engine_0", events), Engine("engine_1", events)]
    return World(Trainer(weights, bucket_bytes, events), engines, events, WeightSyncConfig())


def test_every_engine_gets_every_sync_under_its_version() -> None:
    world = make_world()
    reports = world.push(3)
    assert [engine.versions for engine in world.engines] == [[1, 2, 3], [1, 2, 3]]
    assert world.canaries == [Canary(mean=0.0, largest=0.0)] * 3
    assert reports[0].num_bytes == 3 * 16 * 4


def test_checksums_are_compared_on_the_first_sync_and_every_so_many() -> None:
    world = make_world()
    world.config = WeightSyncConfig(verify_every=3)
    assert [report.verified for report in world.push(5)] == [True, False, False, True, False]


def test_a_single_bucket_costs_one_call_to_each() -> None:
    world = make_world()
    world.push()
    assert world.events == ["write 0", "engine_0 loads 0", "engine_1 loads 0"]


def test_the_trainer_writes_the_next_bucket_while_engines_load() -> None:
    world = make_world(bucket_bytes=64)
    for engine in world.engines:
        engine.delay_s = 0.05
    world.push()
    assert world.events.index("write 1") < world.events.index("engine_0 loads 0")
    assert world.events.index("engine_1 loads 0") < world.events.index("write 2")  # that slot is being read until then
    assert all(engine.weights.keys() == {"w0", "w1", "w2"} for engine in world.engines)


def test_wsy_05_an_engine_that_kept_an_old_tensor_is_found_by_the_canary_and_refuses() -> None:
    world = make_world()
    world.engines[1].skipped = "w2"
    with pytest.raises(RunError, match=r"engine_1 and the trainer differ.*Suspects"):
        world.push()
    assert all(engine.refusal is not None and "failed" in engine.refusal for engine in world.engines)


def test_bytes_that_changed_on_the_way_are_found() -> None:
    world = make_world()
    world.engines[0].corrupt = True
    with pytest.raises(RunError, match="engine_0 read other bytes of bucket 0"):
        world.push()


def test_wsy_08_weights_that_arent_finite_reach_no_engine() -> None:
    world = make_world()
    world.trainer.weights["w1"][3] = float("nan")
    with pytest.raises(RunError, match="w1 has values"):
        world.push()
    assert [(engine.weights, engine.refusal) for engine in world.engines] == [({}, None), ({}, None)]


def test_an_engines_own_error_is_raised_and_all_engines_refuse() -> None:
    world = make_world()
    world.engines[0].failure = RunError("out of memory")
    with pytest.raises(RunError, match="out of memory"):
        world.push()
    assert all(engine.refusal is not None for engine in world.engines)


@pytest.mark.parametrize("late", ["trainer", "engine"])
def test_a_wait_beyond_the_limit_says_what_was_awaited(late: str) -> None:
    world = make_world()
    world.config = WeightSyncConfig(timeout_s=0.2)
    if late == "trainer":
        world.trainer.delay_s = 5
    else:
        world.engines[1].delay_s = 5
    expected = "the trainer to write bucket 0" if late == "trainer" else "engine_0, engine_1 to load bucket 0"
    with pytest.raises(DeadlineExceeded, match=expected):
        world.push()


def test_the_canary_fits_a_short_context() -> None:
    world = make_world()
    pusher = WeightPusher(world.trainer, world.engines, config=world.config, model=SPEC, context_length=6)
    asyncio.run(pusher.connect())
    asyncio.run(pusher.push(version=1))
    assert asyncio.run(pusher.check()).largest == 0.0
