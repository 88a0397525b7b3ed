"""Spark's rules for numbers and truth, row by row on Fractions and floats.

Independent of `processors.expressions.rules`: every number is exact, then rounded half up to the
digits that Spark's result type has.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

INT, LONG, DOUBLE, BOOLEAN = ("int",), ("long",), ("double",), ("boolean",)


@dataclass(frozen=True)
class Tree:
    text: str
    kind: tuple
    of: object  # row -> value: int, Fraction, float, bool or None
    literal: bool = False


def fit(value, kind):
    _, precision, scale = kind
    unscaled = math.floor(abs(value) * 10**scale + Fraction(1, 2)) * (-1 if value < 0 else 1)
    return Fraction(unscaled, 10**scale) if abs(unscaled) < 10**precision else None


def in_range(value, kind):
    bits = 31 if kind == INT else 63
    return value if -(2**bits) <= value < 2**bits else None


def cast(value, source, target):
    if value is None or source == target:
        return value
    if target == DOUBLE:
        return float(value)
    if target == BOOLEAN:
        return value != 0
    if source == DOUBLE and not math.isfinite(value):
        return None
    if source == DOUBLE and target == LONG and value == 2.0**63:
        return 2**63 - 1  # as Spark, which compares with the nearest double
    if target in (INT, LONG):
        return in_range(math.trunc(value), target)
    return fit(Fraction(Decimal(repr(value))) if source == DOUBLE else Fraction(value), target)


def as_decimal(tree):
    if tree.kind[0] == "decimal":
        return tree.kind
    if tree.literal:
        return ("decimal", len(tree.text.strip("-")), 0)
    return ("decimal", 10 if tree.kind == INT else 20, 0)


def wider(one, other):
    whole = max(one[1] - one[2], other[1] - other[2])
    scale = max(one[2], other[2])
    over = max(0, whole + scale - 38)
    return ("decimal", whole + scale - over, max(0, scale - over))


def common(one, other, *, literals=False):
    if one.kind == other.kind:
        return one.kind
    if DOUBLE in (one.kind, other.kind):
        return DOUBLE
    if {one.kind, other.kind} <= {INT, LONG}:
        return LONG
    if not literals:
        one, other = Tree("", one.kind, None), Tree("", other.kind, None)
    return wider(as_decimal(one), as_decimal(other))


def arithmetic_kind(op, one, other):
    kinds = {one.kind, other.kind}
    if DOUBLE in kinds or (op == "/" and kinds <= {INT, LONG}):
        return DOUBLE
    if kinds <= {INT, LONG}:
        return LONG if LONG in kinds else INT
    (_, p1, s1), (_, p2, s2) = as_decimal(one), as_decimal(other)
    if op == "*":
        whole, scale = p1 + p2 + 1 - s1 - s2, s1 + s2
    elif op == "/":
        whole, scale = p1 - s1 + s2, max(6, s1 + p2 + 1)
    elif op == "%":
        whole, scale = min(p1 - s1, p2 - s2), max(s1, s2)
    else:
        whole, scale = max(p1 - s1, p2 - s2) + 1, max(s1, s2)
    if whole + scale <= 38:
        return ("decimal", max(whole + scale, 1), scale)
    return ("decimal", 38, max(38 - whole, min(scale, 6)))


def truncated_remainder(one, other):
    return one - other * math.trunc(Fraction(one) / Fraction(other))


def calculate(op, one, other, kind):
    if one is None or other is None or (op in "/%" and other == 0):
        return None
    if kind == DOUBLE:
        one, other = float(one), float(other)
        if op == "%":
            return math.fmod(one, other) if math.isfinite(one) else math.nan
        if op == "/":
            return one / other
    if op == "/":
        return fit(Fraction(one) / Fraction(other), kind)
    if op == "%":
        result = truncated_remainder(one, other)
    else:
        result = one + other if op == "+" else one - other if op == "-" else one * other
    if kind == DOUBLE:
        return result
    return in_range(result, kind) if kind in (INT, LONG) else fit(Fraction(result), kind)


def order(value):
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


COMPARE = {
    "=": lambda a, b: order(a) == order(b),
    "<>": lambda a, b: order(a) != order(b),
    "<": lambda a, b: order(a) < order(b),
    "<=": lambda a, b: order(a) <= order(b),
    ">": lambda a, b: order(a) > order(b),
    ">=": lambda a, b: order(a) >= order(b),
}


def compared(op, one, other):
    kind = common(one, other, literals=True)

    def of(row):
        a, b = cast(one.of(row), one.kind, kind), cast(other.of(row), other.kind, kind)
        if op == "<=>":
            return b is None if a is None else b is not None and order(a) == order(b)
        return None if a is None or b is None else COMPARE[op](a, b)

    return Tree(f"({one.text} {op} {other.text})", BOOLEAN, of)


def either(values):
    return True if True in values else None if None in values else False


def inverted(value):
    return None if value is None else not value
