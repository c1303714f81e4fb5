from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltrain.config.data import DataConfig, Source
from rltrain.config.errors import UserError
from rltrain.data.cursor import PromptCursor
from rltrain.data.prompts import LoadReport, PromptSet, SourceSpan
from rltrain.types.sample import Prompt


def a_set(*sizes: int, weights: tuple[float, ...] = (1.0,)) -> PromptSet:
    prompts: list[Prompt] = []
    spans: list[SourceSpan] = []
    for source, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        path = Path(f"{'abc'[source]}.jsonl")
        spans.append(SourceSpan(path=path, weight=weight, start=len(prompts), end=len(prompts) + size))
        for row in range(size):
            prompts.append(Prompt(id=f"{path.stem}:{row}", token_ids=np.array([source, row], np.int32), content="x"))
    report = LoadReport(read=len(prompts), kept=len(prompts), too_long=0, skipped_bad=0, max_prompt_tokens=8)
    return PromptSet(prompts=tuple(prompts), sources=tuple(spans), report=report)


def a_config(**changes: Any) -> DataConfig:
    return DataConfig(sources=(Source(path=Path("a.jsonl")),), **changes)


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.id for prompt in prompts]


def test_an_epoch_has_every_prompt_once_in_a_new_order() -> None:
    cursor = PromptCursor(a_set(20), a_config())
    epochs = [ids(cursor.next(10) + cursor.next(10)) for _ in range(3)]
    assert all(len(set(epoch)) == 20 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert cursor.epoch == 3


def test_an_epoch_may_end_within_a_step() -> None:
    cursor = PromptCursor(a_set(5), a_config())
    drawn = ids(cursor.next(3) + cursor.next(3) + cursor.next(4))
    assert len(set(drawn[:5])) == len(set(drawn[5:])) == 5


def test_without_shuffling_the_order_is_the_files() -> None:
    assert ids(PromptCursor(a_set(4), a_config(shuffle=False)).next(4)) == ["a:0", "a:1", "a:2", "a:3"]


def test_dat_01_a_set_smaller_than_a_step_is_refused_with_both_numbers() -> None:
    """DAT-01: `small: error`."""
    cursor = PromptCursor(a_set(3), a_config())
    with pytest.raises(UserError, match="3 prompts < 8"):
        cursor.check(2, 8)
    with pytest.raises(UserError, match="3 prompts < 8"):
        cursor.next(8)


def test_dat_01_a_set_smaller_than_a_step_repeats_where_the_config_says_so() -> None:
    """DAT-01: `small: repeat` gives full steps, prompts as evenly as can be."""
    cursor = PromptCursor(a_set(3), a_config(small="repeat"))
    cursor.check(2, 8)
    assert sorted(Counter(ids(cursor.next(8))).values()) == [2, 3, 3]


def test_dat_08_the_order_is_the_data_seeds() -> None:
    """DAT-08: the order knows no other seed (`run.seed` doesn't reach it) and is part of the state."""
    first, same, other = (PromptCursor(a_set(50), a_config(seed=seed)) for seed in (7, 7, 8))
    orders = [[ids(cursor.next(8)) for _ in range(3)] for cursor in (first, same, other)]
    assert orders[0] == orders[1] != orders[2]
    assert first.state_dict()["seed"] == 7


def test_the_order_is_the_same_on_every_machine() -> None:
    """The argsort of six raw numbers of PCG64(SeedSequence([7, 0, 0])), a stream that numpy keeps (NEP 19)."""
    expected = ["a:3", "a:4", "a:0", "a:2", "a:5", "a:1"]
    assert ids(PromptCursor(a_set(6), a_config(seed=7)).next(6)) == expected


def test_the_state_goes_on_where_it_was_taken() -> None:
    whole = PromptCursor(a_set(7, 5, weights=(2.0, 1.0)), a_config())
    whole.next(9)
    state = json.loads(json.dumps(whole.state_dict()))
    resumed = PromptCursor(a_set(7, 5, weights=(2.0, 1.0)), a_config())
    resumed.load_state_dict(state)
    assert ids(resumed.next(12)) == ids(whole.next(12))


@pytest.mark.parametrize(
    ("prompt_set", "changes", "rule"),
    [
        (a_set(8), {}, "data.sources: .*fingerprint"),
        (a_set(7), {"seed": 2}, "data.seed: .*seed 1, this config's has 2"),
        (a_set(7), {"shuffle": False}, "data.shuffle"),
    ],
)
def test_a_state_of_another_order_is_refused(prompt_set: PromptSet, changes: dict[str, Any], rule: str) -> None:
    state = PromptCursor(a_set(7), a_config()).state_dict()
    with pytest.raises(UserError, match=rule):
        PromptCursor(prompt_set, a_config(**changes)).load_state_dict(state)


def test_shares_hold_at_every_moment() -> None:
    """At no time is a source more than one draw from its share, and each goes through its own epochs."""
    cursor = PromptCursor(a_set(10, 3, 40, weights=(5.0, 1.0, 2.5)), a_config())
    shares = {"a": 5 / 8.5, "b": 1 / 8.5, "c": 2.5 / 8.5}
    drawn: Counter[str] = Counter()
    for count, prompt in enumerate(cursor.next(50) + cursor.next(50), start=1):
        drawn[prompt.id[0]] += 1
        assert all(abs(drawn[name] - share * count) <= 1 for name, share in shares.items())
    assert drawn == {"a": 59, "b": 12, "c": 29}


def test_each_source_has_its_own_epochs() -> None:
    cursor = PromptCursor(a_set(4, 2, weights=(1.0, 1.0)), a_config())
    names = [name for name in ids(cursor.next(6) + cursor.next(6)) if name.startswith("b")]
    assert [sorted(names[start : start + 2]) for start in (0, 2, 4)] == [["b:0", "b:1"]] * 3


def test_too_many_epochs_are_refused_before_the_run() -> None:
    cursor = PromptCursor(a_set(10), a_config(max_epochs=2))
    cursor.check(5, 4)
    with pytest.raises(UserError, match=r"6 steps of 4 prompts are 2\.40 epochs.*run\.steps may be 5"):
        cursor.check(6, 4)
