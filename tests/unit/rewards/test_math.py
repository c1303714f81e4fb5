from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rltrain.rewards.math import math_reward, response_answer


@pytest.mark.parametrize(
    ("label", "response", "reward"),
    [
        pytest.param("$4$", r"$4\sqrt(2)$", 0.0, id="REW-04 a prefix is no answer"),
        pytest.param("$4$", r"\boxed{4\sqrt(2)}", 0.0, id="REW-04 boxed"),
        pytest.param("4", r"\boxed{4)}", 0.0, id="REW-04 left over bracket"),
        pytest.param("13", r"\boxed{\text{13}}", 1.0, id="REW-04 text"),
        pytest.param("13", r"\boxed{12} then \boxed{13}", 1.0, id="REW-05 last box"),
        pytest.param("12", r"\boxed{12} then \boxed{13}", 0.0, id="REW-05 not the first"),
        pytest.param("73", "Thus.\nFinal Answer: **73**", 1.0, id="REW-05 bold"),
        pytest.param("4", r"\boxed{004} and \boxed{004}", 1.0, id="REW-05 zeros, twice"),
        pytest.param("840", r"\boxed{840}\boxed{840}", 1.0, id="REW-05 not joined"),
        pytest.param("7", r"\boxed{7}", 1.0, id="DAT-06"),
        pytest.param("7.0", r"\boxed{7}", 1.0, id="DAT-06 float"),
        pytest.param(" 7 ", r"\boxed{7}", 1.0, id="DAT-06 spaces"),
        pytest.param(r"2\pi", r"\boxed{6.283185}", 1.0, id="SEC-01 decimals"),
        pytest.param("6.283185", r"\boxed{2\pi}", 1.0, id="SEC-01 symbols"),
        ("1/2", r"\boxed{\frac{1}{2}}", 1.0),
        (r"\frac{1}{2}", r"Answer: $\frac12$", 1.0),
        (r"we get \boxed{3}", r"\boxed{3}", 1.0),
        ("x+1", r"\boxed{1+x}", 1.0),
        (r"\{1,2\}", r"\boxed{\{2,1\}}", 1.0),
        ("1,234", r"\boxed{1234}", 1.0),
        ("5", "**Answer:** 5", 1.0),
        ("42", "The answer is 42 apples.", 1.0),
        ("42", "so 6*7 = 42", 1.0),
        ("5", "(so the answer is 5)", 1.0),
        ("6", r"The answer is \(6\).", 1.0),
        ("Paris", "The answer is paris.", 1.0),
        ("Paris", r"\boxed{\text{pairs}}", 0.0),
        ("3", "I don't know", 0.0),
        (r"\foo", r"\boxed{\foo}", 1.0),
        (r"\foo", r"\boxed{\bar}", 0.0),
        ("3", "", 0.0),
    ],
)
def test_answers(label: str, response: str, reward: float) -> None:
    assert math_reward(response, label) == reward


def test_rew_01_the_result_is_the_same_off_the_main_thread() -> None:
    """REW-01: math-verify's own time limits need signals, which only the main thread has."""
    rewards: list[float] = []
    thread = threading.Thread(target=lambda: rewards.append(math_reward(r"\boxed{1}", "$1$")))
    thread.start()
    thread.join()

    async def in_an_executor() -> float:
        return await asyncio.get_running_loop().run_in_executor(None, math_reward, r"\boxed{1}", "$1$")

    assert [*rewards, asyncio.run(in_an_executor())] == [1.0, 1.0]


@pytest.mark.parametrize(
    "answer",
    [
        r"__import__('os').system('touch {path}')\pi",
        r"\begin{{pmatrix}}__import__('os').system('touch {path}') & 1\end{{pmatrix}}",
        r"\left[__import__('os').system('touch {path}')\right]",
    ],
)
def test_sec_01_no_answer_is_run(tmp_path: Path, answer: str) -> None:
    """SEC-01: the answer is wrong, nothing was touched, and a wrong answer after it is still wrong."""
    path = tmp_path / "pwn"
    assert math_reward(f"\\boxed{{{answer.format(path=path)}}}", "1") == 0.0
    assert not path.exists()
    assert math_reward(r"\boxed{2}", "1") == 0.0


def test_an_empty_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="label is empty"):
        math_reward("7", " ")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$1$ and $2$", "2"),
        ("Answer: 3\nanswer is: 4", "4"),
        ("the answer is $5$ km", "5"),
        ("2 * 3 * 4", "4"),
        ("*7*", "7"),
        ("`8`", "8"),
        (r"\boxed{**9**}", "9"),
        (r"\boxed{2**3}", "2**3"),
        (r"\boxed{a * b * c}", "a * b * c"),
        ("nothing", None),
    ],
)
def test_what_counts_as_the_answer(response: str, answer: str | None) -> None:
    assert response_answer(response) == answer
