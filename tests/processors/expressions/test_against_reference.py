"""Random expressions over random rows, against the row-by-row reference."""

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import compile_expression
from errata.schemas.fields import FieldType, physical
from tests.processors.expressions.reference import (
    BOOLEAN,
    COMPARE,
    DOUBLE,
    INT,
    LONG,
    Tree,
    arithmetic_kind,
    calculate,
    cast,
    common,
    compared,
    either,
    in_range,
    inverted,
    order,
)

FIELDS = {
    name: FieldType.parse(declared)
    for name, declared in {
        "i": "long?",
        "j": "long",
        "k": "int?",
        "p": "decimal(18,2)?",
        "q": "decimal(20,8)",
        "w": "decimal(38,10)?",
        "x": "double?",
        "y": "double",
        "b": "boolean?",
        "c": "boolean",
    }.items()
}


@st.composite
def leaves(draw, boolean):
    if boolean:
        name = draw(st.sampled_from("bc"))
        return Tree(name, BOOLEAN, lambda row: row[name])
    name = draw(
        st.sampled_from(["i", "j", "k", "p", "q", "w", "x", "y", "int", "decimal", "double"])
    )
    if name == "int":
        value = draw(st.sampled_from([0, 1, -1, 7, 1000000, 2147483647, -2147483648]))
        return Tree(str(value), INT, lambda row: value, literal=True)
    if name == "decimal":
        digits = draw(st.sampled_from(["0.5", "1.25", "99.99", "0.005", "12345678901234.5"]))
        scale = len(digits.split(".")[1])
        precision = max(scale, len(digits.replace(".", "").lstrip("0")))
        return Tree(digits, ("decimal", precision, scale), lambda row: Fraction(digits))
    if name == "double":
        return Tree("3.1e0", DOUBLE, lambda row: 3.1)
    kind = FIELDS[name]
    kind = ("decimal", kind.precision, kind.scale) if kind.kind == "decimal" else (kind.kind,)
    return Tree(name, kind, lambda row: row[name])


@st.composite
def trees(draw, boolean, depth):
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(leaves(boolean))
    number, truth = trees(False, depth - 1), trees(True, depth - 1)
    if boolean:
        return draw(truths(number, truth))
    form = draw(
        st.sampled_from(["op", "op", "op", "-", "abs", "coalesce", "case", "cast", "nullif"])
    )
    one = draw(number)
    if form == "op":
        other, op = draw(number), draw(st.sampled_from("+-*/%"))
        kind = arithmetic_kind(op, one, other)
        of = lambda row: calculate(op, one.of(row), other.of(row), kind)  # noqa: E731
        return Tree(f"({one.text} {op} {other.text})", kind, of)
    if form in ("-", "abs"):
        change = (lambda v: -v) if form == "-" else abs

        def of(row):
            value = one.of(row)
            value = None if value is None else change(value)
            return (
                in_range(value, one.kind)
                if value is not None and len(one.kind) == 1 and one.kind != DOUBLE
                else value
            )

        text = f"(- ({one.text} + 0))" if one.literal else f"(- {one.text})"
        return Tree(text if form == "-" else f"abs({one.text})", one.kind, of)
    if form == "cast":
        target, name = draw(
            st.sampled_from(
                [
                    (INT, "int"),
                    (LONG, "bigint"),
                    (DOUBLE, "double"),
                    (("decimal", 12, 3), "decimal(12,3)"),
                ]
            )
        )
        return Tree(
            f"cast({one.text} as {name})", target, lambda row: cast(one.of(row), one.kind, target)
        )
    other = draw(number)
    if form == "nullif":
        same = compared("=", one, other)
        of = lambda row: None if same.of(row) else one.of(row)  # noqa: E731
        return Tree(f"nullif({one.text}, {other.text})", one.kind, of)
    kind = common(one, other)
    left = lambda row: cast(one.of(row), one.kind, kind)  # noqa: E731
    right = lambda row: cast(other.of(row), other.kind, kind)  # noqa: E731
    if form == "coalesce":
        of = lambda row: right(row) if left(row) is None else left(row)  # noqa: E731
        return Tree(f"coalesce({one.text}, {other.text})", kind, of)
    test = draw(truth)
    of = lambda row: left(row) if test.of(row) else right(row)  # noqa: E731
    return Tree(f"case when {test.text} then {one.text} else {other.text} end", kind, of)


@st.composite
def truths(draw, number, truth):
    form = draw(
        st.sampled_from(["compare", "compare", "and", "or", "not", "null", "in", "between"])
    )
    if form in ("and", "or"):
        one, other = draw(truth), draw(truth)
        if form == "or":
            of = lambda row: either([one.of(row), other.of(row)])  # noqa: E731
        else:
            of = lambda row: inverted(  # noqa: E731
                either([inverted(one.of(row)), inverted(other.of(row))])
            )
        return Tree(f"({one.text} {form} {other.text})", BOOLEAN, of)
    if form == "not":
        one = draw(truth)
        return Tree(f"(not {one.text})", BOOLEAN, lambda row: inverted(one.of(row)))
    one, other = draw(number), draw(number)
    if form == "null":
        return Tree(f"({one.text} is null)", BOOLEAN, lambda row: one.of(row) is None)
    if form == "compare":
        return compared(draw(st.sampled_from([*COMPARE, "<=>"])), one, other)
    third = draw(number)
    if form == "between":
        above, below = compared(">=", one, other), compared("<=", one, third)
        return Tree(
            f"({one.text} between {other.text} and {third.text})",
            BOOLEAN,
            lambda row: inverted(either([inverted(above.of(row)), inverted(below.of(row))])),
        )
    kind = common(Tree("", common(one, other), None), third)

    def of(row):
        values = [cast(t.of(row), t.kind, kind) for t in (one, other, third)]
        return either(
            [None if None in (values[0], v) else order(values[0]) == order(v) for v in values[1:]]
        )

    return Tree(f"({one.text} in ({other.text}, {third.text}))", BOOLEAN, of)


WHOLES = st.one_of(
    st.integers(-100, 100), st.sampled_from([2**63 - 1, -(2**63), 2**31, 10**9, -(10**18)])
)
DOUBLES = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 0.1, 2.0**62, 1e20]),
)


def decimals(precision, scale):
    top = 10**precision - 1
    unscaled = st.one_of(st.integers(-1000, 1000), st.integers(-top, top), st.just(top))
    return unscaled.map(lambda value: Fraction(value, 10**scale))


def optional(values):
    return st.one_of(st.none(), values)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": optional(WHOLES),
            "j": WHOLES,
            "k": optional(WHOLES.filter(lambda v: -(2**31) <= v < 2**31)),
            "p": optional(decimals(18, 2)),
            "q": decimals(20, 8),
            "w": optional(decimals(38, 10)),
            "x": optional(DOUBLES),
            "y": DOUBLES,
            "b": optional(st.booleans()),
            "c": st.booleans(),
        }
    ),
    max_size=5,
)


def frame(rows):
    def unscaled(name, value):
        scale = FIELDS[name].scale if FIELDS[name].kind == "decimal" else 0
        return int(value * 10**scale) if isinstance(value, Fraction) else value

    columns = {name: [unscaled(name, row[name]) for row in rows] for name in FIELDS}
    return pl.DataFrame(columns, schema=physical(FIELDS))


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


@pytest.mark.parametrize("boolean", [False, True])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_oracle_expressions_equal_the_reference_row_by_row(boolean, data):
    tree = data.draw(trees(boolean, 3))
    try:
        expression = compile_expression(tree.text, FIELDS)
    except ExpressionError as error:
        assume("overflow" not in error.found)  # constants only, refused on purpose
        raise
    rows = data.draw(ROWS)
    values = expression.evaluate(frame(rows))
    kind = tree.kind
    assert expression.type.required == FieldType(*kind)
    assert values.dtype == expression.type.dtype
    got = values.to_list()
    if kind[0] == "decimal":
        got = [None if value is None else Fraction(value, 10 ** kind[2]) for value in got]
    expected = [tree.of(row) for row in rows]
    assert len(got) == len(expected)
    assert all(map(same, got, expected)), (tree.text, got, expected)
    assert expression.type.optional or None not in got
