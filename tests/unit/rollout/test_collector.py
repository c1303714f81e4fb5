from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rltrain.config.rollout import SamplingConfig
from rltrain.rollout.collector import Draw, RolloutCollector, check_failures, stop_ids
from rltrain.telemetry.spans import StepClock
from rltrain.types.errors import DeadlineExceeded, RunError
from rltrain.types.sample import SampleGroup, Status
from tests.unit.rollout.conftest import FakeEngine, FakeScorer, make_prompt

DRAW = Draw(
    stream="train",
    sampling=SamplingConfig(max_tokens=2, temperature=1.0, stop_token_ids=(4,)),
    samples_per_prompt=2,
    eos_ids=(1, 2),
    vocab_limit=1000,
    run_seed=1,
    deterministic=False,
    timeout_s=5.0,
    max_failed_share=0.5,
)


def collect(
    engines: list[FakeEngine], *first_ids: int, draw: Draw = DRAW, scorer: FakeScorer | None = None, step: int = 3
) -> list[SampleGroup]:
    collector = RolloutCollector(engines, scorer or FakeScorer(), draw)
    return asyncio.run(collector.collect([make_prompt(first) for first in first_ids], step=step))


def test_groups_come_in_the_order_of_prompts_whatever_engine_drew_them() -> None:
    engines = [FakeEngine("engine_0", delay_s=0.05), FakeEngine("engine_1")]
    groups = collect(engines, 10, 20, 30, 40)
    assert [group.group_id for group in groups] == ["3/0", "3/1", "3/2", "3/3"]
    assert [[int(sample.response_ids[0]) for sample in group.samples] for group in groups] == [
        [10, 11],
        [20, 21],
        [30, 31],
        [40, 41],
    ]
    assert [group.samples[0].reward for group in groups] == [10.0, 20.0, 30.0, 40.0]
    assert [len(engine.calls) for engine in engines] == [1, 1]


def test_a_prompt_drawn_twice_makes_two_groups() -> None:
    groups = collect([FakeEngine()], 10, 10)
    assert [group.group_id for group in groups] == ["3/0", "3/1"]


def test_requests_carry_every_eos_id_and_no_seed() -> None:
    engine = FakeEngine()
    collect([engine], 10)
    ((request,),) = engine.calls
    assert request.sampling.stop_token_ids == (4, 1, 2)
    assert request.sampling.seed is None
    assert (request.sampling.n, request.sampling.max_tokens) == (2, 2)
    assert engine.admitted_together == [True]  # one call is all that the engine gets


def test_ignored_eos_ids_dont_stop_a_response() -> None:
    assert stop_ids(SamplingConfig(ignore_eos=True, stop_token_ids=(4,)), (1, 2)) == (4,)


def test_rol_03_deterministic_requests_are_admitted_together_with_seeds_that_lie_n_apart() -> None:
    engines = [FakeEngine("engine_0"), FakeEngine("engine_1")]
    collect(engines, 10, 10, 10, 10, draw=replace(DRAW, deterministic=True))
    seeds = [request.sampling.seed for engine in engines for call in engine.calls for request in call]
    assert [seed - seeds[0] for seed in seeds if seed is not None and seeds[0] is not None] == [0, 2, 4, 6]
    assert [engine.admitted_together for engine in engines] == [[True], [True]]


def test_rol_06_evaluation_leaves_trainings_sampling_as_it_was() -> None:
    engine = FakeEngine()
    training = RolloutCollector([engine], FakeScorer(), DRAW)
    greedy = replace(DRAW, stream="heldout", sampling=SamplingConfig(temperature=0.0), samples_per_prompt=1)
    evaluation = RolloutCollector([engine], FakeScorer(), greedy)
    for collector in (training, evaluation, training):
        asyncio.run(collector.collect([make_prompt(10)], step=1))
    drawn = [call[0].sampling for call in engine.calls]
    assert [(sampling.temperature, sampling.n) for sampling in drawn] == [(1.0, 2), (0.0, 1), (1.0, 2)]
    assert drawn[0] == drawn[2]


def test_rewards_of_the_first_responses_are_computed_while_others_are_generated() -> None:
    scorer = FakeScorer()
    slow, fast = FakeEngine("engine_0", delay_s=0.3), FakeEngine("engine_1")
    collector = RolloutCollector([slow, fast], scorer, DRAW)

    async def run() -> list[list[str]]:
        task = asyncio.create_task(collector.collect([make_prompt(10), make_prompt(20)], step=3))
        await asyncio.sleep(0.15)
        scored = list(scorer.calls)
        await task
        return scored

    assert asyncio.run(run()) == [["3/1"]]
    assert scorer.calls == [["3/1"], ["3/0"]]


def test_the_wait_for_rewards_counts_as_reward_and_generation_does_not() -> None:
    clock = StepClock()
    engine, scorer = FakeEngine(delay_s=0.2), FakeScorer(delay_s=0.1)
    collector = RolloutCollector([engine], scorer, DRAW, clock=clock)
    clock.restart()
    with clock.span("rollout"):
        asyncio.run(collector.collect([make_prompt(10)], step=1))
    times = clock.finish()
    assert times["time/rollout_s"] >= 0.19
    assert 0.09 <= times["time/reward_s"] < 0.19 + times["time/rollout_s"]


def test_generation_beyond_the_limit_names_the_engines_that_are_late() -> None:
    engines = [FakeEngine("engine_0"), FakeEngine("engine_1", delay_s=10)]
    with pytest.raises(DeadlineExceeded, match=r"step 3.*rollout\.timeout_s = 0\.2 s: engine_1 \(2 groups\)"):
        collect(engines, 10, 20, 30, 40, draw=replace(DRAW, timeout_s=0.2))


def test_an_engines_death_ends_the_collection_at_once() -> None:
    class DeadEngine(FakeEngine):
        async def generate(self, requests: object, *, admit_together: bool) -> list[object]:
            raise RunError("engine_1 died")

    with pytest.raises(RunError, match="engine_1 died"):
        collect([FakeEngine(delay_s=10), DeadEngine("engine_1")], 10, 20)


def test_a_failed_request_becomes_failed_samples_and_the_rest_is_scored() -> None:
    groups = collect([FakeEngine(failing=frozenset({20}))], 10, 20)
    assert [sample.status for sample in groups[1].samples] == [Status.GENERATION_FAILED] * 2
    assert [sample.reward for sample in groups[0].samples] == [10.0, 11.0]


def test_too_many_failures_stop_the_run_with_the_first_details() -> None:
    with pytest.raises(RunError, match=r"4 of 6 samples failed.*0\.5") as caught:
        collect([FakeEngine(failing=frozenset({10, 20}))], 10, 20, 30)
    lines = str(caught.value).splitlines()
    assert lines[1] == "3/0/0 generation_failed: prompt 7 is too long"
    assert len(lines) == 4


def test_the_allowed_share_itself_is_no_reason_to_stop() -> None:
    groups = collect([FakeEngine(failing=frozenset({20}))], 10, 20)
    check_failures(groups, limit=0.5, step=3)
    with pytest.raises(RunError, match="2 of 4"):
        check_failures(groups, limit=0.49, step=3)


def test_no_prompts_give_no_groups() -> None:
    assert collect([FakeEngine()]) == []
