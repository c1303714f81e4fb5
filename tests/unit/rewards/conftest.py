"""Samples whose ids are the code points of their text, so that decoding is `chr`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rltrain.config.reward import RewardConfig
from rltrain.rewards.rewarder import Rewarder
from rltrain.types.sample import FinishReason, Ids, Prompt, Sample, SampleGroup

Score = Callable[..., list[Sample]]


def decode(ids: Ids) -> str:
    return "".join(map(chr, ids))


@pytest.fixture
def group() -> Callable[..., SampleGroup]:
    def build(texts: Sequence[str], *, label: str | None = "1", group_id: str = "0/0") -> SampleGroup:
        prompt = Prompt(
            id="a:1",
            token_ids=np.array([113], np.int32),
            content="q",
            label=label,
            metadata={"level": 3},
        )
        samples = (
            Sample(
                group_id=group_id,
                index=index,
                prompt_ids=prompt.token_ids,
                response_ids=np.array([ord(character) for character in text], np.int32),
                logprobs=np.zeros(len(text), np.float32),
                loss_mask=np.ones(len(text), np.bool_),
                finish_reason=FinishReason.STOP,
            )
            for index, text in enumerate(texts)
        )
        return SampleGroup(group_id=group_id, prompt=prompt, samples=tuple(samples))

    return build


@pytest.fixture
def functions(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a module `mine` of reward functions and returns its directory."""

    def write(source: str) -> Path:
        (tmp_path / "mine.py").write_text(source)
        return tmp_path

    return write


@pytest.fixture
def score(group: Callable[..., SampleGroup], tmp_path: Path) -> Score:
    """Scores one group of texts with a fresh rewarder."""

    def run(config: RewardConfig, texts: Sequence[str], *, label: str | None = "1") -> list[Sample]:
        async def scored() -> list[Sample]:
            rewarder = Rewarder(config, decode=decode, search_path=tmp_path)
            await rewarder.start()
            try:
                return list((await rewarder.score([group(texts, label=label)]))[0].samples)
            finally:
                await rewarder.close()

        return asyncio.run(scored())

    return run
