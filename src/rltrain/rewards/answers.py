r"""The mathematical answer that a text gives, as LaTeX.

Of a response it is what the last `\boxed{}` holds: where that was opened and never closed, there is no answer. Without
a box it is what follows the last "answer is" or "answer:"; without that, the last formula between math delimiters, or
the last number. Answers side by side (`12 or 13`, boxed or announced) are one answer, the set of them.
"""

from __future__ import annotations

import re

from rltrain.rewards.boxed import last_boxes
from rltrain.rewards.functions import NUMBER

ANSWER = re.compile(r"(?i:answer)(?:\s+is\s*:?|\s*:|\s*=)\s*(?P<tail>[^\n]*)")
MATHS = r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]"
FORMULA = re.compile(MATHS, re.DOTALL)
MARKED = re.compile(r"(?<![\w*)}])(\*\*|__|\*|_)(?=\S)([^\n]*?\S)\1(?![\w*({\\])")
ALTERNATIVE = re.compile(
    rf"(?:\s+[^\W\d_]{{2,}})?\s*(?:[,;/]|,?\s*\b(?:or|and)\b)\s*(?:(?:or|and|maybe|perhaps|possibly)\s+)*"
    rf"\$?(?:{MATHS}|{NUMBER.pattern}(?![\w.%]*\s*[-+*/^=<>]))"
)
"""A further answer after one, with a unit between them or not; an equation or a calculation is none."""
GROUPS = re.compile(
    r"(?<![\d.,])\d{1,3}(?P<by>\\[,;:! ]|~|\{,\}|[ \u00a0\u2009\u202f])\d{3}(?:(?P=by)\d{3})*(?!\d|(?P=by)\d)"
)
"""A whole number whose thousands are parted by something other than a comma."""
CURRENCY = re.compile(r"\\\$")


def label_answer(label: str) -> str:
    """Of the bare answer, one between math delimiters, or a whole solution with a box; empty where there is none."""
    boxed = last_boxes(label)
    if boxed is not None:
        return _joined(boxed)
    formula = FORMULA.fullmatch(label.strip())
    return _normal(_first_group(formula) if formula else label.strip().strip("$"))


def response_answer(response: str) -> str | None:
    """The answer by the rule of this module; None where the response has none."""
    boxed = last_boxes(response)
    if boxed is not None:
        return _joined([_plain(one) for one in boxed]) if boxed else None
    text = _plain(response)
    announced = list(ANSWER.finditer(text))
    if announced:
        found = _announced(announced[-1]["tail"])
        return _normal(found) if found else None
    formulas = list(FORMULA.finditer(text))
    if formulas:
        return _normal(_first_group(formulas[-1]))
    numbers = NUMBER.findall(text)
    return numbers[-1] if numbers else None


def _announced(tail: str) -> str | None:
    """The formula in a sentence's tail, the number it starts with when words follow, else all of it."""
    formula = FORMULA.search(tail)
    if formula:
        return _with_alternatives(_first_group(formula), tail[formula.end() :])
    tail = tail.strip().rstrip(".,;:!")
    tail = tail.rstrip(")") if "(" not in tail else tail
    bare = GROUPS.sub(_closed_up, tail.lstrip("$"))
    number = NUMBER.match(bare)
    if number and re.match(r"\s+[^\W\d_]{2,}|[,;]\s", bare[number.end() :]):
        return _with_alternatives(number[0], bare[number.end() :])
    return tail or None


def _with_alternatives(first: str, rest: str) -> str:
    answers, place = [first], 0
    while match := ALTERNATIVE.match(rest, place):
        found = match[0].strip()
        formula = FORMULA.search(found)
        answers.append(_first_group(formula) if formula else NUMBER.findall(found)[-1])
        place = match.end()
    return _joined(answers)


def _joined(answers: list[str]) -> str:
    """One answer, or several different ones as LaTeX for their set."""
    return r" \text{ or } ".join(dict.fromkeys(_normal(answer) for answer in answers))


def _normal(answer: str) -> str:
    """Without thousands separators that LaTeX would read as factors, and without dollar signs."""
    return GROUPS.sub(_closed_up, CURRENCY.sub("", answer)).strip()


def _closed_up(number: re.Match[str]) -> str:
    return number[0].replace(number["by"], "")


def _plain(text: str) -> str:
    """Without Markdown's bold, italics and code marks (stars between operands stay: they are mathematics)."""
    return MARKED.sub(r"\2", text.replace("`", ""))


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()
