"""Every aggregate function against plain recomputation of its content."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.aggregates.calls import AggregateTypeError, Call
from errata.processors.aggregates.functions import FUNCTIONS, aggregate_function
from errata.processors.aggregates.ladder import Key
from errata.processors.aggregates.totals import UNIT
from errata.schemas.fields import FieldType
from tests.processors.aggregates.holistic_cases import COVARIANCES, HOLISTIC
from tests.processors.aggregates.reference import (
    BY_TIME,
    EXACT,
    EXTREMES,
    GROUPS,
    LONG,
    Case,
    History,
    fresh,
    of_content,
    same,
)

CASES = EXACT + EXTREMES + HOLISTIC + COVARIANCES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@settings(max_examples=25)
@given(data=st.data())
def test_oracle_results_are_those_of_the_content_that_is_left(
    case: Case, data: st.DataObject
) -> None:
    function = case.function
    history = History(function, case.types, case.values, keyed=case.keyed)
    history.run(data.draw)
    emitted, exact = function.emit(history.states), function.exact(history.states)
    assert emitted.dtype == FieldType.parse(function.result).dtype
    assert case in EXTREMES or exact.all()
    for group, inside in enumerate(history.content):
        assert not exact[group] or same(emitted[group], case.expected(inside))
    # What travels with a result is that of the content, however it came to be.
    kept = of_content(function, history.states).filter(exact)
    again = fresh(function, history.content, case.types)
    assert function.exact(again).all()
    assert kept.equals(of_content(function, again).filter(exact))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@settings(max_examples=10)
@given(data=st.data())
def test_merging_is_associative_and_gives_the_union(case: Case, data: st.DataObject) -> None:
    function = case.function
    parts = []
    names = iter(range(99))
    for _ in range(3):
        rows = data.draw(st.lists(st.lists(case.values, max_size=5), min_size=3, max_size=3))
        parts.append(
            [[(*row, f"id{next(names)}") if case.keyed else row for row in g] for g in rows]
        )
    a, b, c = (fresh(function, content, case.types) for content in parts)
    left = function.merge(function.merge(a, b), c)
    right = function.merge(a, function.merge(b, c))
    union = [[row for part in parts for row in part[group]] for group in range(GROUPS)]
    together = fresh(function, union, case.types)
    for states in (left, right):
        assert function.exact(states).all()
        assert of_content(function, states).equals(of_content(function, together))


DOUBLES = (
    st.floats()
    | st.floats(-1e6, 1e6)
    | st.integers(-5, 5).map(float)
    | st.sampled_from([1e17, -1e300, 1.7e308, 5e-324, math.inf, -math.inf, math.nan])
)


@pytest.mark.parametrize("argument", ["double?", "float?"])
@pytest.mark.parametrize("name", ["sum", "avg"])
@settings(max_examples=60)
@given(data=st.data())
def test_oracle_totals_of_doubles_stay_within_the_bound(
    name: str, argument: str, data: st.DataObject
) -> None:
    kind = FieldType.parse(argument)
    function = aggregate_function(Call(name, (kind,)))
    values = DOUBLES if kind.kind == "double" else st.floats(width=32)
    history = History(function, [kind], st.tuples(st.none() | values))
    history.run(data.draw)
    states = history.states
    emitted = function.emit(states)
    assert function.exact(states).all()
    for group, inside in enumerate(history.content):
        there = [v for (v,) in inside if v is not None]
        finite = [Fraction(v) for v in there if math.isfinite(v)]
        if not there:
            assert emitted[group] is None
        elif len(finite) < len(there):
            special = sum(v for v in there if not math.isfinite(v))
            assert same(emitted[group], special)
        total = Fraction(states["high"][group]) + Fraction(states["low"][group])
        moved = [v for (v,) in history.moved[group] if v is not None and math.isfinite(v)]
        ever = [abs(Fraction(v)) for v in moved]
        # A merge is two changes: the other state was made by one.
        bound = 2 * history.change_count * sum(ever) / 2**96 + Fraction(len(ever), 2**1035)
        assert abs(total * Fraction(UNIT) - sum(finite)) <= bound
        if not finite:
            assert (states["high"][group], states["low"][group]) == (0.0, 0.0)
        elif len(finite) == len(there):
            nearest = total * Fraction(UNIT) / (1 if name == "sum" else len(there))
            # An average is rounded twice: its total, then the quotient.
            assert close(emitted[group], nearest, ulps=0 if name == "sum" else 2)


def close(found: float, expected: Fraction, *, ulps: int) -> bool:
    """Whether a double is the expected number within units in its last place, or of the state."""
    try:
        number = float(expected)
    except OverflowError:
        return math.isinf(found) or abs(found) > 1.7e308
    unit = max(Fraction(math.ulp(number)), Fraction(1, 2**1034))
    return number == found or abs(Fraction(found) - expected) <= ulps * unit


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("count", "", "long"),
        ("count", "double?", "long"),
        ("count_if", "boolean", "long"),
        ("sum", "int", "long?"),
        ("sum", "long", "long?"),
        ("sum", "decimal(18,2)", "decimal(28,2)?"),
        ("sum", "decimal(30,2)", "decimal(38,2)?"),
        ("sum", "double", "double?"),
        ("sum", "float", "double?"),
        ("avg", "int", "double?"),
        ("avg", "long", "double?"),
        ("avg", "float", "double?"),
        ("avg", "decimal(18,2)", "decimal(22,6)?"),
        ("avg", "decimal(38,36)", "decimal(38,38)?"),
        ("max", "string", "string?"),
        ("min", "date", "date?"),
        ("first", "uuid", "uuid?"),
        ("last", "timestamp-micros", "timestamp-micros?"),
        ("max_by", "bytes double", "bytes?"),
        ("var_samp", "decimal(18,2)", "double?"),
        ("stddev_pop", "float", "double?"),
        ("bool_and", "boolean", "boolean?"),
        ("bool_or", "boolean", "boolean?"),
        ("percentile", "decimal(18,2)", "double?"),
        ("median", "int", "double?"),
        ("count distinct", "string? long", "long"),
        ("mode", "decimal(18,2)", "decimal(18,2)?"),
        ("corr", "int decimal(18,2)", "double?"),
        ("covar_pop", "double long", "double?"),
        ("realised_volatility", "float", "double?"),
    ],
)
def test_a_result_has_the_type_that_spark_gives_it(name: str, arguments: str, result: str) -> None:
    types = tuple(map(FieldType.parse, arguments.split()))
    parameters = (Fraction(1),) * FUNCTIONS[name].parameters
    call = Call(name, types, BY_TIME, parameters=parameters)
    assert str(aggregate_function(call).result) == result


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("sum", "string", r"needs a number for sum, found sum\(string\); cast the argument"),
        ("avg", "timestamp-millis", r"needs a number for avg, found avg\(timestamp-millis\)"),
        ("var_pop", "boolean", "needs a number for var_pop"),
        ("bool_or", "long", r"needs a boolean for bool_or, found bool_or\(long\)"),
        ("count_if", "long", "needs a boolean for count_if"),
        ("max", "", "needs one argument of max, found none"),
        ("max_by", "long", "needs 2 arguments of max_by, found 1"),
        ("count", "long long", "needs one argument of count, found 2"),
        ("count distinct", "", "needs one argument or more of count distinct, found none"),
        ("percentile", "long", "needs 2 arguments of percentile, found 1"),
        ("median", "date", r"needs a number for median, found median\(date\); cast the argument"),
        ("corr", "long string", r"needs two numbers for corr, found corr\(long, string\)"),
        ("realised_volatility", "string", "needs a number for realised_volatility"),
        ("maxx", "long", r"needs an aggregate function, found maxx; did you mean max\b"),
    ],
)
def test_an_argument_that_does_not_suit_is_refused_with_what_would(
    name: str, arguments: str, text: str
) -> None:
    with pytest.raises(AggregateTypeError, match=text):
        aggregate_function(Call(name, tuple(map(FieldType.parse, arguments.split()))))


@pytest.mark.parametrize(
    ("name", "kind", "parameter", "text"),
    [
        ("percentile", "long", "1.5", "a share of 0 to 1 for percentile, found 1.5; 0.99 is the"),
        ("percentile", "long", "-1", "a share of 0 to 1 for percentile, found -1"),
        ("percentile", "string", "0.5", r"a number for percentile, found percentile\(string\)"),
        ("top_k", "long", "0", "a whole number of 1 to 1000 for top_k, found 0"),
        ("most_common", "long", "1001", "a whole number of 1 to 1000 for most_common, found 1001"),
        ("top_k", "long", "2.5", "a whole number of 1 to 1000 for top_k, found 2.5"),
        ("top_k", "bytes", "2", r"anything but bytes for top_k, found top_k\(bytes\); write hex"),
    ],
)
def test_a_parameter_out_of_bounds_is_refused_with_what_is_possible(
    name: str, kind: str, parameter: str, text: str
) -> None:
    call = Call(name, (FieldType.parse(kind),), parameters=(Fraction(parameter),))
    with pytest.raises(AggregateTypeError, match=text):
        aggregate_function(call)


ALIKE = [
    {"sum", "avg"},
    {"percentile", "median", "count distinct", "mode", "top_k", "most_common"},
    {"corr", "covar_samp", "covar_pop"},
    {"var_samp", "var_pop", "stddev_samp", "stddev_pop"},
    {"bool_and", "bool_or"},
]


@pytest.mark.parametrize("argument", ["long", "decimal(18,2)", "decimal(38,2)", "double"])
def test_functions_share_a_state_iff_it_is_the_same(argument: str) -> None:
    functions: dict[str, Any] = {}
    for name, function in FUNCTIONS.items():
        kind = "boolean" if name.startswith("bool") or name == "count_if" else argument
        types = (FieldType.parse(kind),) * (function.arguments or 1)
        parameters = (Fraction(1),) * function.parameters
        functions[name] = aggregate_function(Call(name, types, BY_TIME, parameters=parameters))
    for one, left in functions.items():
        for other, right in functions.items():
            share = one == other or any({one, other} <= alike for alike in ALIKE)
            assert (left.state_key == right.state_key) is share
            assert not share or left.parts == right.parts


def test_first_by_other_keys_or_without_nulls_has_a_state_of_its_own() -> None:
    calls = [
        Call("first", (LONG,), BY_TIME),
        Call("first", (LONG,), BY_TIME, ignore_nulls=True),
        Call("first", (LONG,), (Key(LONG, largest=True), *BY_TIME)),
    ]
    assert len({aggregate_function(call).state_key for call in calls}) == 3
