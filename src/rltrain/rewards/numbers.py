"""Numbers of two answers: exact ones are compared exactly, decimals within their digits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sympy  # pyright: ignore[reportMissingTypeStubs]

sp: Any = sympy  # ships no types
TOLERANCE = sp.Rational(2, 10**6)
"""Largest relative difference that a decimal may have from what it stands for."""
DECIMAL = re.compile(r"\d*\.(?P<digits>\d+)")


@dataclass(frozen=True, slots=True)
class Decimals:
    """What the decimals of two answers are good for."""

    unit: Any
    """The last digit's of the coarsest one; None where there is none to be seen."""

    @classmethod
    def of(cls, *texts: str) -> Decimals:
        digits = [len(match["digits"]) for text in texts for match in DECIMAL.finditer(text)]
        return cls(sp.Rational(1, 10 ** min(digits)) if digits else None)


def is_number(value: Any) -> bool:
    return isinstance(value, sp.Expr) and bool(value.is_number)


def same_number(one: Any, other: Any, decimals: Decimals) -> bool:
    """Whether two constants are equal; with a decimal among them, up to `TOLERANCE` and less than its last digit."""
    exact = not one.has(sp.Float) and not other.has(sp.Float)
    one, other = _exact(one), _exact(other)
    if not (one.is_finite and other.is_finite):
        return bool(one == other)
    difference = one - other
    if difference.is_Rational and exact:
        return bool(difference == 0)
    if exact:
        return _is_zero(difference, one)
    size, limit = _size(difference), TOLERANCE * max(_size(one), _size(other))
    return bool(difference == 0 or (size <= limit and (decimals.unit is None or size < decimals.unit)))


def alike(one: Any, other: Any) -> bool:
    """Whether exact parts of what math-verify takes for equal are so: it rounds them to 15 places."""
    one, other = _assigned(one), _assigned(other)
    if is_number(one) and is_number(other):
        return same_number(one, other, Decimals(None))
    if isinstance(one, sp.FiniteSet) and isinstance(other, sp.FiniteSet):
        return all(any(alike(ours, theirs) for theirs in other.args) for ours in one.args)
    if isinstance(one, sp.Expr) and isinstance(other, sp.Expr):
        exact = not one.has(sp.Float) and not other.has(sp.Float)
        comparable = exact and one.free_symbols == other.free_symbols
        return not comparable or (one - other).equals(0) is not False
    if isinstance(one, sp.MatrixBase) and isinstance(other, sp.MatrixBase) and one.shape == other.shape:
        return all(alike(ours, theirs) for ours, theirs in zip(one.flat(), other.flat(), strict=True))
    ours, theirs = getattr(one, "args", ()), getattr(other, "args", ())
    if type(one) is not type(other) or len(ours) != len(theirs) or not isinstance(one, sp.Tuple | sp.Interval):
        return True  # another form of the same: math-verify's word stands
    return all(alike(a, b) for a, b in zip(ours, theirs, strict=True))


def _assigned(value: Any) -> Any:
    """What `x = 5` says of x."""
    return value.rhs if isinstance(value, sp.Equality) and isinstance(value.lhs, sp.Symbol) else value


def _exact(value: Any) -> Any:
    """With fractions for decimals, evaluated."""
    return value.xreplace({part: sp.Rational(str(part)) for part in value.atoms(sp.Float)}).doit()


def _size(value: Any) -> Any:
    return abs(value) if value.is_Rational else abs(sp.N(value, 30))


def _is_zero(difference: Any, size: Any) -> bool:
    found = difference.equals(0)
    if found is None:
        return bool(abs(sp.N(difference, 60)) < abs(sp.N(size, 60)) * sp.Rational(1, 10**40))
    return bool(found)
