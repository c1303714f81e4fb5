"""Whole rewarders; those with `math` or `custom` parts start real worker processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.errors import UserError
from rltrain.config.reward import Custom, Exact, LastNumber, Math, PrefixMatch, RewardConfig, RewardPart
from rltrain.rewards.rewarder import Rewarder
from rltrain.types.sample import SampleGroup, Status

Functions = Callable[[str], Path]
Groups = Callable[..., SampleGroup]
SPIN_ON_3 = """
def score(response):
    while response == "3":
        pass
    return float(response)
"""


def a_config(part: RewardPart, **changes: Any) -> RewardConfig:
    return RewardConfig(parts={"part": part}, **changes)


def custom(**changes: Any) -> Custom:
    return Custom(kind="custom", **{"function": "mine:score", **changes})


def decode(ids: Any) -> str:
    return "".join(map(chr, ids))


def alive(pid: int) -> bool:
    """Running, that is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def worker_pids() -> set[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True
    ).stdout
    return {int(line.split()[0]) for line in found.splitlines() if "rltrain.rewards.worker" in line}


def test_the_reward_is_the_weighted_sum_of_its_parts(score: Any) -> None:
    parts = {
        "prefix": PrefixMatch(kind="prefix_match", weight=2.0),
        "exact": Exact(kind="exact"),
        "number": LastNumber(kind="last_number", weight=-0.5),
    }
    first, second = score(RewardConfig(parts=parts), ["7777", "77"], label="7777")
    assert first.reward == 2.0 + 1.0 - 0.5
    assert second.reward == 1.0
    assert second.reward_parts == {"prefix": 0.5, "exact": 0.0, "number": 0.0}


def test_inline_parts_start_no_process(score: Any) -> None:
    score(a_config(PrefixMatch(kind="prefix_match")), ["1"])
    assert not worker_pids()


def test_samples_that_failed_before_pass_untouched(group: Groups) -> None:
    before = group(["1", "1"])
    failed = before.samples[0].failed(Status.GENERATION_FAILED, "engine gone")
    mixed = replace(before, samples=(failed, before.samples[1]))
    rewarder = Rewarder(a_config(Exact(kind="exact")), decode=decode, search_path=Path())
    after = asyncio.run(rewarder.score([mixed]))[0]
    assert after.samples[0] is failed
    assert after.samples[1].reward == 1.0


def test_a_missing_or_unusable_label_is_a_status(score: Any) -> None:
    (sample,) = score(a_config(Exact(kind="exact")), ["1"], label=None)
    assert (sample.status, sample.reward) == (Status.REWARD_ERROR, None)
    assert "no label" in sample.detail
    (sample,) = score(a_config(LastNumber(kind="last_number")), ["1"], label="one")
    assert sample.status is Status.REWARD_ERROR


def test_dat_06_math_scores_numeric_labels_in_a_worker(score: Any) -> None:
    """DAT-06 and REW-01 end to end; the event loop runs while workers compute; an empty response is wrong, no error."""
    for label in ("7", "7.0", " 7 "):
        right, wrong, empty = score(a_config(Math(kind="math")), [r"\boxed{7}", r"\boxed{8}", ""], label=label)
        assert [right.reward, wrong.reward, empty.reward] == [1.0, 0.0, 0.0]


def test_a_math_answer_that_takes_for_ever_is_a_time_out(score: Any) -> None:
    config = a_config(Math(kind="math"), timeout_s=2.0)
    right, endless, wrong = score(config, [r"\boxed{1}", r"\boxed{10^{10^{10^{10}}}}", r"\boxed{2}"])
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert endless.status in (Status.REWARD_TIMEOUT, Status.REWARD_ERROR)
    assert endless.reward is None


def test_rew_02_a_spinning_function_costs_its_own_sample_only(
    functions: Functions, group: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    """REW-02: sample 3 of 8 spins in each of 20 steps; seven rewards, it in the log, the pool's size constant."""
    directory = functions(SPIN_ON_3)

    async def steps() -> tuple[list[SampleGroup], set[int], float]:
        rewarder = Rewarder(a_config(custom(), timeout_s=0.2, workers=2), decode=decode, search_path=directory)
        await rewarder.start()
        started = time.monotonic()
        counts: set[int] = set()
        results: list[SampleGroup] = []
        for step in range(20):
            results += await rewarder.score([group(list("01234567"), group_id=f"{step}/0")])
            async with asyncio.timeout(30):  # on a busy machine the killed one's successor takes a moment
                while len(worker_pids()) < 2:
                    await asyncio.sleep(0.05)
            counts.add(len(worker_pids()))
        elapsed = time.monotonic() - started
        await rewarder.close()
        return results, counts, elapsed

    with caplog.at_level(logging.WARNING):
        results, counts, elapsed = asyncio.run(steps())
    for step, result in enumerate(results):
        rewards = [sample.reward for sample in result.samples]
        assert rewards == [0.0, 1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0]
        assert result.samples[3].status is Status.REWARD_TIMEOUT
        assert f"sample {step}/0/3: took more than 0.2 s" in caplog.text
    assert counts == {2}
    assert not worker_pids()
    assert elapsed < 20 * 5


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("import os; os._exit(3)", "exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "exit status -11"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("return float('nan')", "returned nan, not a finite number"),
        ("return object()", "returned object"),
        ("return 'a' * 2**25", "not a number"),
        ("raise ValueError('a' * 2**25)", "ValueError: aaa"),
        ("return {'score': 1}", "value_key"),
    ],
)
def test_whatever_a_function_does_is_a_status_of_its_sample(
    functions: Functions, score: Any, body: str, detail: str
) -> None:
    """REW-02 and REW-10: crashes, exceptions and bad values name the sample and leave the others alone."""
    functions(f"def score(response):\n    if response == '1':\n        {body}\n    return True\n")
    first, bad, last = score(a_config(custom(), timeout_s=20), list("012"))
    assert [first.reward, last.reward] == [1.0, 1.0]
    assert (bad.status, bad.reward) == (Status.REWARD_ERROR, None)
    assert detail in bad.detail
    assert "sample 0/0/1" in bad.detail


def test_a_reply_too_long_to_read_is_an_error(functions: Functions, score: Any) -> None:
    functions("def score(response):\n    return {'score': 1.0, ('a' * 2**25 if response == '1' else 'b'): 1.0}\n")
    first, bad = score(a_config(custom(value_key="score"), timeout_s=20), list("01"))
    assert first.reward_parts == {"part": 1.0, "part/b": 1.0}
    assert bad.status is Status.REWARD_ERROR


def test_what_a_function_prints_does_not_disturb_the_answers(functions: Functions, score: Any) -> None:
    functions("import sys\ndef score(response):\n    print('{}')\n    sys.stdin.read()\n    return 1\n")
    assert [sample.reward for sample in score(a_config(custom()), list("01"))] == [1.0, 1.0]


def test_output_of_workers_goes_to_the_log_file(functions: Functions, group: Groups, tmp_path: Path) -> None:
    directory = functions("def score(response):\n    print('seen', response, flush=True)\n    return 1\n")

    async def scored() -> None:
        rewarder = Rewarder(a_config(custom()), decode=decode, search_path=directory, log_directory=tmp_path)
        await rewarder.start()
        await rewarder.score([group(["7"])])
        await rewarder.close()

    asyncio.run(scored())
    assert (tmp_path / "reward_part.log").read_text() == "seen 7\n"


def test_group_functions_see_the_whole_group(functions: Functions, score: Any) -> None:
    functions("def score(responses, metadata): return [metadata['level'] * (r == max(responses)) for r in responses]")
    samples = score(a_config(custom(per="group")), list("132"))
    assert [sample.reward for sample in samples] == [0.0, 3.0, 0.0]


def test_rew_10_a_group_function_with_too_few_values_fails_the_group(functions: Functions, score: Any) -> None:
    """REW-10."""
    functions("def score(responses): return [1] * 7")
    samples = score(a_config(custom(per="group")), list("01234567"))
    assert {sample.status for sample in samples} == {Status.REWARD_ERROR}
    assert "returned 7 values for 8 samples" in samples[0].detail


def test_async_functions_run_side_by_side(functions: Functions, score: Any) -> None:
    """Sixteen samples meet at a barrier in the one worker, so all of them were in flight at once."""
    functions(
        "import asyncio\nbarrier = asyncio.Barrier(16)\n"
        "async def score(response):\n    await barrier.wait()\n    return 1\n"
    )
    samples = score(a_config(custom(), timeout_s=20), ["x"] * 16)
    assert [sample.reward for sample in samples] == [1.0] * 16


def test_async_functions_that_are_late_or_stuck_cost_their_own_sample_only(functions: Functions, score: Any) -> None:
    functions(
        "import asyncio\n"
        "async def score(response):\n"
        "    if response == '1': await asyncio.sleep(1000)\n"
        "    while response == '2': pass\n"
        "    await asyncio.sleep(0.1)\n"
        "    return 1\n"
    )
    samples = score(a_config(custom(), timeout_s=1.0), list("0123"))
    assert [sample.reward for sample in samples] == [1.0, None, None, 1.0]
    assert [samples[1].status, samples[2].status] == [Status.REWARD_TIMEOUT] * 2


def test_a_function_that_cannot_be_loaded_is_a_user_error(functions: Functions, score: Any) -> None:
    functions("def score(response, answer): ...")
    with pytest.raises(UserError, match=r"reward\.parts\.part: .*wants an argument 'answer'"):
        score(a_config(custom(), workers=2), ["1"])
    assert not worker_pids()


def test_every_function_that_cannot_be_loaded_is_named(functions: Functions, score: Any) -> None:
    functions("good = len")
    parts = {name: custom(function=f"mine:{name}") for name in ("one", "two")}
    with pytest.raises(UserError) as caught:
        score(RewardConfig(parts={**parts, "math": Math(kind="math")}), ["1"])
    assert [problem.key for problem in caught.value.problems] == ["reward.parts.one", "reward.parts.two"]
    assert not worker_pids()


def test_a_worker_that_died_while_idle_is_replaced_at_no_ones_cost(functions: Functions, group: Groups) -> None:
    directory = functions("def score(response): return 1")

    async def scored() -> list[float | None]:
        rewarder = Rewarder(a_config(custom()), decode=decode, search_path=directory)
        await rewarder.start()
        os.kill(worker_pids().pop(), signal.SIGKILL)
        await asyncio.sleep(0.2)
        result = (await rewarder.score([group(["7"])]))[0]
        await rewarder.close()
        return [sample.reward for sample in result.samples]

    assert asyncio.run(scored()) == [1.0]


def test_a_cancelled_step_leaves_a_pool_that_works(functions: Functions, group: Groups) -> None:
    directory = functions(SPIN_ON_3)

    async def scored() -> list[float | None]:
        rewarder = Rewarder(a_config(custom(), timeout_s=60), decode=decode, search_path=directory)
        await rewarder.start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rewarder.score([group(["3"])]), 0.3)
        result = (await rewarder.score([group(["5"])]))[0]
        await rewarder.close()
        return [sample.reward for sample in result.samples]

    assert asyncio.run(scored()) == [5.0]


def test_a_kill_reaches_what_the_function_started(functions: Functions, score: Any, tmp_path: Path) -> None:
    functions(
        "import pathlib, subprocess\n"
        "def score(response):\n"
        "    child = subprocess.Popen(['sleep', '1000'])\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "    child.wait()\n"
    )
    (sample,) = score(a_config(custom(), timeout_s=1.0), ["1"])
    assert sample.status is Status.REWARD_TIMEOUT
    pid = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: not alive(pid), timeout_s=5)


DRIVER = """
import asyncio, sys
from pathlib import Path
from rltrain.config.reward import Custom, RewardConfig
from rltrain.rewards.rewarder import Responses, Rewarder
from rltrain.types.sample import Prompt
import numpy as np

async def main():
    config = RewardConfig(parts={"part": Custom(kind="custom", function="mine:score")}, timeout_s=600)
    rewarder = Rewarder(config, decode=str, search_path=Path(sys.argv[1]))
    await rewarder.start()
    prompt = Prompt(id="a:1", token_ids=np.zeros(1, np.int32), content="q")
    await rewarder.score_texts([Responses(name="0/0", prompt=prompt, texts=("3",), indices=(0,))])

asyncio.run(main())
"""


def test_workers_end_with_a_driver_that_was_killed(functions: Functions, tmp_path: Path) -> None:
    """Even while their function spins."""
    pid_file = tmp_path / "pid"
    source = f"import os, pathlib\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n" + SPIN_ON_3
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(functions(source))])
    try:
        assert wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", timeout_s=60)
        time.sleep(0.5)
        worker = int(pid_file.read_text())
        assert alive(worker)
    finally:
        driver.kill()
        driver.wait()
    assert wait_until(lambda: not alive(worker), timeout_s=10)


def test_sec_01_an_answer_in_a_worker_runs_nothing(score: Any, tmp_path: Path) -> None:
    """SEC-01."""
    pwn = tmp_path / "pwn"
    attack = f"\\boxed{{__import__('os').system('touch {pwn}')\\pi}}"
    samples = score(a_config(Math(kind="math")), [attack, r"\boxed{2}", r"\boxed{1}"])
    assert [sample.reward for sample in samples] == [0.0, 0.0, 1.0]
    assert not pwn.exists()
