from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rltrain.rewards.answers import response_answer
from rltrain.rewards.math import math_reward


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


@pytest.mark.parametrize(
    ("label", "response", "reward"),
    [
        (r"$\frac{1}{3^{80}}$", r"\boxed{\frac{1}{3^{79}}}", 0.0),
        (r"$\frac{1}{3^{80}}$", r"\boxed{3^{-80}}", 1.0),
        (r"$\frac{1}{500!}$", r"\boxed{\frac{1}{501!}}", 0.0),
        ("500!", r"\boxed{500!}", 1.0),
        (r"10^{-30}", r"\boxed{2 \cdot 10^{-30}}", 0.0),
        ("123456789012345678901234567890", r"\boxed{123456789012345678901234567891}", 0.0),
        ("2^{1000}", r"\boxed{2^{1000}+1}", 0.0),
        (r"\sqrt{8}", r"\boxed{2\sqrt2}", 1.0),
        (r"\sqrt{2}+\sqrt{3}", r"\boxed{\sqrt{5+2\sqrt6}}", 1.0),
        (r"\sin(1)^2+\cos(1)^2", r"\boxed{1}", 1.0),
        (r"\{3^{-80}, 1\}", r"\boxed{\{1,3^{-79}\}}", 0.0),
        (r"(3^{-80}, 1)", r"\boxed{(3^{-79},1)}", 0.0),
        (r"(3^{-80}, 1)", r"\boxed{(\frac{1}{3^{80}},1)}", 1.0),
        (r"\begin{pmatrix}1\\3^{-80}\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\3^{-79}\end{pmatrix}}", 0.0),
        (r"\frac{x}{3^{80}}", r"\boxed{\frac{x}{3^{79}}}", 0.0),
        (r"\frac{x}{3^{80}}", r"\boxed{3^{-80}x}", 1.0),
        ("x=3^{-80}", r"\boxed{x=3^{-79}}", 0.0),
        ("x=3^{-80}", r"\boxed{3^{-79}}", 0.0),
        (r"\infty", r"\boxed{\infty}", 1.0),
        ("5", r"\boxed{1/0}", 0.0),
    ],
)
def test_exact_numbers_are_compared_exactly(label: str, response: str, reward: float) -> None:
    assert math_reward(response, label) == reward


@pytest.mark.parametrize(
    ("label", "answer", "reward"),
    [
        (r"\frac{1}{3}", "0.333333", 1.0),
        (r"\frac{1}{3}", "0.33", 0.0),
        (r"\frac{2}{3}", "0.666667", 1.0),
        (r"\frac{2}{3}", "0.666666", 1.0),
        (r"\frac{1}{8}", "0.125", 1.0),
        ("3.14", r"\pi", 0.0),
        ("0.0000001", "0.0000002", 0.0),
        ("1234567.1", "1234567.2", 0.0),
        ("1000000", "1000000.5", 0.0),
        ("10000000.0", "10000001", 0.0),
        ("7.0", "7", 1.0),
    ],
)
def test_a_decimal_stands_for_what_it_rounds(label: str, answer: str, reward: float) -> None:
    """Within 2e-6 of it, and within its last digit."""
    assert math_reward(f"\\boxed{{{answer}}}", label) == reward


@pytest.mark.parametrize(
    ("label", "answer", "reward"),
    [
        (r"50\%", "0.5", 1.0),
        (r"50\%", "50", 1.0),
        ("50", r"50\%", 1.0),
        (r"50\%", r"\frac{1}{2}", 1.0),
        (r"50\%", r"51\%", 0.0),
        (r"90^\circ", "90", 1.0),
        ("5", r"5 \text{ cm}", 1.0),
    ],
)
def test_units(label: str, answer: str, reward: float) -> None:
    assert math_reward(f"\\boxed{{{answer}}}", label) == reward


@pytest.mark.parametrize("end", [r"no, wait, \boxed{", r"then \boxed{7", r"and \boxed{5", r"so \boxed"])
def test_a_last_box_that_was_never_closed_is_no_answer(end: str) -> None:
    assert math_reward(rf"\boxed{{5}} {end}", "5") == 0.0


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        (r"\boxed{1\,000\,000}", 1.0),
        (r"\boxed{1\ 000\ 000}", 1.0),
        (r"\boxed{1~000~000}", 1.0),
        (r"\boxed{1 000 000}", 1.0),
        (r"\boxed{1{,}000{,}000}", 1.0),
        (r"\boxed{\$1,000,000}", 1.0),
        ("The answer is 1 000 000.", 1.0),
        ("The answer is 1 000 000 dollars.", 1.0),
        (r"\boxed{1 000 00}", 0.0),
        (r"\boxed{1\,000 000}", 0.0),
        (r"\boxed{1 000}", 0.0),
    ],
)
def test_thousands_may_be_parted(response: str, reward: float) -> None:
    assert math_reward(response, "1000000") == reward


@pytest.mark.parametrize(
    ("label", "response", "reward"),
    [
        ("12", "The answer is 12 or 13", 0.0),
        ("13", "The answer is 12 or 13", 0.0),
        ("12", "The answer is 12, or maybe 13.", 0.0),
        ("12", "The answer is 12, 13", 0.0),
        ("12", "The answer is 12 apples or 13 apples", 0.0),
        ("12", "The answer is $12$ or $13$.", 0.0),
        ("12", r"\boxed{12} or \boxed{13}", 0.0),
        ("13", r"\boxed{12} or \boxed{13}", 0.0),
        ("13", r"$\boxed{12} \text{ or } \boxed{13}$", 0.0),
        ("12", r"\boxed{12 \text{ or } 13}", 0.0),
        ("12", "The answer is 12 and 12", 1.0),
        ("12", "The answer is 12, since 3*4=12", 1.0),
        ("12", "The answer is 12, because 5 + 7 = 12.", 1.0),
        ("12", "the answer is 12, not 13", 1.0),
        ("12 or 13", "The answer is 12 or 13", 1.0),
        ("12, 13", r"\boxed{12, 13}", 1.0),
        (r"\{12,13\}", r"\boxed{12} and \boxed{13}", 1.0),
        (r"\{12,13\}", r"\boxed{12} and \boxed{14}", 0.0),
    ],
)
def test_several_answers_are_one_set(label: str, response: str, reward: float) -> None:
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
