r"""Mathematical equality by math-verify, after our own extraction of the answer. Runs in a killable worker process.

Numbers are compared by `numbers.py`: exactly, and with a tolerance only where one of them is a decimal. An answer that
the parser doesn't read to its end is wrong. Nothing of the response is evaluated as Python: math-verify's
plain-expression extraction, which uses sympy's `parse_expr`, is never asked.
"""

from __future__ import annotations

import logging
import re
from typing import Any, cast

from math_verify import LatexExtractionConfig, parse, verify  # pyright: ignore[reportMissingTypeStubs]

from rltrain.rewards.answers import label_answer, response_answer
from rltrain.rewards.numbers import Decimals, alike, is_number, same_number

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off: the process is killable

LATEX = [LatexExtractionConfig(boxed_match_priority=0)]
WORDS = re.compile(r"[^\W\d_][^\W\d_ ]{2,}(?: [^\W\d_]+)*")
"""Text such as `Paris`, which as mathematics would be a product of letters in any order."""


def math_reward(response: str, label: str) -> float:
    """1 where the response's answer equals the label. Raises ValueError for an empty label, and sympy's errors."""
    gold = label_answer(label)
    if not gold:
        raise ValueError("the label is empty")
    answer = response_answer(response)
    return float(answer is not None and equal(gold, answer))


def equal(gold: str, answer: str) -> bool:
    """Whether two answers are the same text or the same mathematics; words are the same when spelt the same."""
    if gold == answer:
        return True
    if WORDS.fullmatch(_without_text(gold)):
        return _without_text(gold).casefold() == _without_text(answer).casefold()
    ours, theirs = _parsed(gold), _parsed(answer)
    if not ours or not theirs:
        return False
    if is_number(ours[0]) and is_number(theirs[0]):
        percents = [factor for text, factor in ((gold, 1), (answer, -1)) if "%" in text]
        scale = 100 ** sum(percents)  # of 9 and 9 % both readings count
        decimals = Decimals.of(ours[-1], theirs[-1])
        return any(same_number(ours[0] * factor, theirs[0], decimals) for factor in {1, scale})
    # Off-thread safe: without time limits of its own math-verify sets no signals.
    return verify(ours, theirs, timeout_seconds=None, raise_on_error=True) and alike(ours[0], theirs[0])


def _parsed(answer: str) -> list[Any]:
    """The parsed expression and its text, or the text alone where it isn't LaTeX to its end."""
    return cast(Any, parse)(f"\\boxed{{{answer}}}", extraction_config=LATEX, parsing_timeout=0, raise_on_error=True)


def _without_text(answer: str) -> str:
    match = re.fullmatch(r"\\(?:text|mathrm|textbf)\{(.*)\}", answer.strip())
    return (match[1] if match else answer).strip()
