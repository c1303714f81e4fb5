r"""Mathematical equality by math-verify, after our own extraction of the answer. Runs in a killable worker process.

The answer is the last complete `\boxed{}`; without one, what follows the last "answer is" or "answer:";
without that, the last formula between math delimiters, or the last number. An answer that the parser doesn't read
to its end is wrong. Nothing of the response is evaluated as Python: math-verify's plain-expression extraction, which
uses sympy's `parse_expr`, is never asked.
"""

from __future__ import annotations

import logging
import re
from typing import Any, cast

from math_verify import LatexExtractionConfig, parse, verify  # pyright: ignore[reportMissingTypeStubs]

from rltrain.rewards.boxed import last_boxed
from rltrain.rewards.functions import NUMBER

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off: the process is killable

LATEX = [LatexExtractionConfig(boxed_match_priority=0)]
ANSWER = re.compile(r"(?i:answer)(?:\s+is\s*:?|\s*:|\s*=)\s*(?P<tail>[^\n]*)")
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
MARKED = re.compile(r"(?<![\w*)}])(\*\*|__|\*|_)(?=\S)([^\n]*?\S)\1(?![\w*({\\])")
WORDS = re.compile(r"[^\W\d_][^\W\d_ ]{2,}(?: [^\W\d_]+)*")
"""Text such as `Paris`, which as mathematics would be a product of letters in any order."""


def math_reward(response: str, label: str) -> float:
    """1 where the response's answer equals the label. Raises ValueError for an empty label, and sympy's errors."""
    gold = label_answer(label)
    if not gold:
        raise ValueError("the label is empty")
    answer = response_answer(response)
    return float(answer is not None and equal(gold, answer))


def label_answer(label: str) -> str:
    """A label may be the bare answer, between math delimiters, or a whole solution with a box."""
    boxed = last_boxed(label)
    if boxed is not None:
        return boxed.strip()
    formula = FORMULA.fullmatch(label.strip())
    return _first_group(formula) if formula else label.strip()


def response_answer(response: str) -> str | None:
    """The answer's LaTeX by the rule of this module; None where the response has none."""
    boxed = last_boxed(response)
    if boxed is not None:
        return _plain(boxed)
    text = _plain(response)
    announced = list(ANSWER.finditer(text))
    if announced:
        return _announced(announced[-1]["tail"])
    formulas = list(FORMULA.finditer(text))
    if formulas:
        return _first_group(formulas[-1])
    numbers = NUMBER.findall(text)
    return numbers[-1] if numbers else None


def equal(gold: str, answer: str) -> bool:
    """Whether two answers are the same text or the same mathematics; words are the same when spelt the same."""
    if gold == answer:
        return True
    if WORDS.fullmatch(_without_text(gold)):
        return _without_text(gold).casefold() == _without_text(answer).casefold()
    # Off-thread safe: without time limits of its own math-verify sets no signals.
    return verify(_parsed(gold), _parsed(answer), timeout_seconds=None, raise_on_error=True)


def _parsed(answer: str) -> list[Any]:
    """The parsed expression and its text, or the text alone where it isn't LaTeX to its end."""
    return cast(Any, parse)(f"\\boxed{{{answer}}}", extraction_config=LATEX, parsing_timeout=0, raise_on_error=True)


def _announced(tail: str) -> str | None:
    """The formula in a sentence's tail, the number it starts with when words follow, else all of it."""
    formula = FORMULA.search(tail)
    if formula:
        return _first_group(formula)
    tail = tail.strip().rstrip(".,;:!")
    tail = tail.rstrip(")") if "(" not in tail else tail
    number = NUMBER.match(tail.lstrip("$"))
    if number and re.match(r"\s+[^\W\d_]{2,}|[,;]\s", tail.lstrip("$")[number.end() :]):
        return number[0]
    return tail or None


def _plain(text: str) -> str:
    """Without Markdown's bold, italics and code marks (stars between operands stay: they are mathematics)."""
    return MARKED.sub(r"\2", text.replace("`", ""))


def _without_text(answer: str) -> str:
    match = re.fullmatch(r"\\(?:text|mathrm|textbf)\{(.*)\}", answer.strip())
    return (match[1] if match else answer).strip()


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()
