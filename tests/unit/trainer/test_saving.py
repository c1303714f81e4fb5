"""Saving beside the training, with a policy that writes a text."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltrain.checkpoint.manifest import FileFacts, facts_of
from rltrain.checkpoint.state import RunState
from rltrain.checkpoint.steps import SavedSteps
from rltrain.config.checkpoint import CheckpointConfig
from rltrain.trainer.saving import Saver, retention
from rltrain.types.errors import RunError, SaveFailed
from tests.small_disk import make_read_only, small_disk


class Policy:
    """Fails as it is told; only what the saver calls."""

    def __init__(self) -> None:
        self.begins: Exception | None = None
        self.ends: Exception | None = None
        self.moments: list[bool] = []
        self.released = asyncio.Event()
        self.released.set()
        self._path = Path()

    async def save(self, directory: str, *, moments: bool) -> int:
        if self.begins is not None:
            raise self.begins
        self.moments.append(moments)
        self._path = Path(directory) / "rank_00000.safetensors"
        return 7

    async def finish_save(self) -> Mapping[str, FileFacts]:
        await self.released.wait()
        if self.ends is not None:
            raise self.ends
        self._path.parent.mkdir()
        self._path.write_text("weights")
        return {self._path.name: facts_of(self._path)}


def state(step: int) -> RunState:
    return RunState(
        step=step,
        version=step + 1,
        updates=0,
        moments=False,
        data={"drawn": [step]},
        config={},
        packages={},
        model={},
        reference=None,
    )


class Bench:
    def __init__(self, root: Path, **config: Any) -> None:
        self.notes: list[str] = []
        self.policy, self.root = Policy(), root
        self.config = CheckpointConfig(**({"every": 1} | config))
        made: Any = self.policy
        model = root.parent / "model"
        model.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json", "model.safetensors", "notes.txt"):
            (model / name).write_text(name)
        self.saver = Saver(self.config, root, made, model=model, num_bytes=1000, note=self.notes.append)

    async def save(self, step: int, metrics: Mapping[str, float] | None = None) -> bool:
        began = await self.saver.begin(state(step))
        if began:
            self.saver.finish(step, recorded(metrics or {}))
            await self.saver.settled()
        return began

    @property
    def steps(self) -> list[int]:
        return [saved.step for saved in SavedSteps(self.root, retention(self.config)).whole()]


def recorded(metrics: Mapping[str, float]) -> asyncio.Future[Mapping[str, float]]:
    done: asyncio.Future[Mapping[str, float]] = asyncio.get_running_loop().create_future()
    done.set_result(metrics)
    return done


def run(act: Callable[[Bench], Awaitable[None]], root: Path, **config: Any) -> Bench:
    async def whole() -> Bench:
        bench = Bench(root, **config)
        await act(bench)
        return bench

    return asyncio.run(whole())


def test_a_saved_step_has_the_state_and_what_the_workers_wrote(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        await bench.save(3, {"reward/mean": 0.5, "train/grad_norm": float("nan")})

    bench = run(act, tmp_path / "run", optimizer=False)
    (saved,) = SavedSteps(tmp_path / "run", retention(bench.config)).whole()
    files = {"state.json", "actor/rank_00000.safetensors", "hf/config.json", "hf/tokenizer.json"}
    assert saved.manifest.files.keys() == files
    assert (saved.path / "hf" / "config.json").read_text() == "config.json"
    assert saved.manifest.metrics == {"reward/mean": 0.5}
    found = RunState.read(saved.path)
    assert (found.step, found.updates, found.moments, found.data) == (3, 7, False, {"drawn": [3]})
    assert bench.policy.moments == [False]


@pytest.mark.parametrize(
    ("every", "last", "expected"), [(4, 10, [4, 8, 10]), (5, 10, [5, 10]), (20, 10, [10]), (None, 10, [])]
)
def test_ckp_13_every_so_many_steps_and_the_last_one_once(
    tmp_path: Path, every: int | None, last: int, expected: list[int]
) -> None:
    found: list[int] = []

    async def act(bench: Bench) -> None:
        for step in range(1, last + 1):
            if bench.saver.due(step, last=last):
                found.append(step)
                await bench.save(step)
                assert not bench.saver.due(step, last=last)

    run(act, tmp_path / "run", every=every, keep_last=1)
    assert found == expected
    assert [path.name for path in (tmp_path / "run").glob("step_*")] == [f"step_{step}" for step in expected[-1:]]


def test_training_goes_on_while_a_step_is_written_and_the_next_save_waits_for_it(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        bench.policy.released.clear()
        assert await bench.saver.begin(state(1))
        bench.saver.finish(1, recorded({}))
        await asyncio.sleep(0.05)
        bench.saver.check()
        assert bench.steps == []
        following = asyncio.ensure_future(bench.save(2))
        await asyncio.sleep(0.05)
        assert len(bench.policy.moments) == 1
        bench.policy.released.set()
        assert await following

    assert run(act, tmp_path / "run").steps == [2, 1]


FAILURES = {
    "at its begin": lambda policy: setattr(policy, "begins", SaveFailed("no room")),
    "in the writing": lambda policy: setattr(policy, "ends", SaveFailed("no room")),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=list(FAILURES))
def test_ckp_02_a_save_that_fails_leaves_the_step_before(tmp_path: Path, fail: Callable[[Policy], None]) -> None:
    async def act(bench: Bench) -> None:
        await bench.save(1)
        fail(bench.policy)
        with pytest.raises(SaveFailed, match="no room"):
            await bench.save(2)
        assert bench.steps == [1]
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["latest", "step_1"]

    run(act, tmp_path / "run", keep_last=1)


@pytest.mark.parametrize("fail", FAILURES.values(), ids=list(FAILURES))
def test_a_failed_save_may_be_gone_on_from_and_the_next_one_works(
    tmp_path: Path, fail: Callable[[Policy], None]
) -> None:
    async def act(bench: Bench) -> None:
        await bench.save(1)
        fail(bench.policy)
        await bench.save(2)
        assert bench.steps == [1]
        assert "no room; training goes on" in bench.notes[0]
        bench.policy.begins = bench.policy.ends = None
        await bench.save(3)

    assert run(act, tmp_path / "run", on_failure="continue").steps == [3, 1]


def test_a_full_disk_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nearly_full(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=999)

    async def act(bench: Bench) -> None:
        await bench.save(1)
        monkeypatch.setattr(shutil, "disk_usage", nearly_full)
        with pytest.raises(SaveFailed, match="GiB left"):
            await bench.save(2)
        assert len(bench.policy.moments) == 1

    assert run(act, tmp_path / "run").steps == [1]


def test_wsy_08_a_bad_weight_ends_the_run_whatever_failures_do(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        await bench.save(1)
        bench.policy.ends = RunError("weight of x isn't finite")
        with pytest.raises(RunError, match="isn't finite"):
            await bench.save(2)

    assert run(act, tmp_path / "run", on_failure="continue").steps == [1]


def test_what_a_save_raised_is_found_at_the_next_step(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        bench.policy.ends = RunError("weight of x isn't finite")
        assert await bench.saver.begin(state(1))
        bench.saver.finish(1, recorded({}))
        await asyncio.sleep(0.05)
        with pytest.raises(RunError, match="isn't finite"):
            bench.saver.check()
        await bench.saver.close()

    assert run(act, tmp_path / "run").steps == []


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_a_disk_that_turned_read_only_leaves_the_step_before(tmp_path: Path, on_failure: str) -> None:
    async def act(bench: Bench) -> None:
        await bench.save(1)
        make_read_only(root)
        if on_failure == "continue":
            assert not await bench.save(2)
        else:
            with pytest.raises(SaveFailed, match="Read-only file system"):
                await bench.save(2)
        assert bench.steps == [1]

    with small_disk(tmp_path / "disk", num_bytes=2**20) as root:
        bench = run(act, root, on_failure=on_failure)
    assert ["Read-only file system" in note for note in bench.notes] == [True] * (on_failure == "continue")
