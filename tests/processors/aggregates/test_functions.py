"""Every aggregate function against plain recomputation of its content."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.aggregates.compensating import Compensating
from processors.aggregates.double_total import UNIT
from processors.aggregates.functions import AggregateTypeError, aggregate_function
from schemas.fields import FieldType, physical

GROUPS = 3
Content = list[list[Any]]


def half_up(number: Fraction) -> int:
    whole = math.floor(abs(number) + Fraction(1, 2))
    return whole if number >= 0 else -whole


def fitting(number: int, precision: int) -> int | None:
    return number if abs(number) < 10**precision else None


def same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def sum_of_longs(values: list[int]) -> int | None:
    total = sum(values)
    return total if values and -(2**63) <= total < 2**63 else None


def total_order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return (value != value, value)


def largest(values: list[Any]) -> Any:
    return max(values, key=total_order) if values else None


def average(precision: int, shift: int) -> Callable[[list[int]], int | None]:
    def of(values: list[int]) -> int | None:
        if not values:
            return None
        return fitting(half_up(Fraction(sum(values) * 10**shift, len(values))), precision)

    return of


@dataclass(frozen=True)
class Case:
    function: str
    argument: str | None
    values: st.SearchStrategy[Any]
    expected: Callable[[list[Any]], Any]
    """Result of the values of a group that are not null (of all, for the star)."""


LONGS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**63 - 1, 2**53])
TEXTS = st.sampled_from(["", "a", "ab", "b", "ä", "\U0001f600", "\uffff", "Z"])


def digits(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    return st.integers(-most, most) | st.integers(-5, 5) | st.sampled_from([most, -most, most - 1])


CASES = [
    Case("count", None, st.none(), len),
    Case("count", "string?", TEXTS, len),
    Case("sum", "long", LONGS, sum_of_longs),
    Case("sum", "decimal(5,2)", digits(5), lambda v: fitting(sum(v), 15) if v else None),
    Case("sum", "decimal(28,2)", digits(28), lambda v: fitting(sum(v), 38) if v else None),
    Case("sum", "decimal(29,2)", digits(29), lambda v: fitting(sum(v), 38) if v else None),
    Case("sum", "decimal(38,0)", digits(38), lambda v: fitting(sum(v), 38) if v else None),
    Case("avg", "long", LONGS, lambda v: sum(v) / len(v) if v else None),
    Case("avg", "decimal(5,2)", digits(5), average(9, 4)),
    Case("avg", "decimal(28,2)", digits(28), average(32, 4)),
    Case("avg", "decimal(36,36)", digits(36), average(38, 2)),
    Case("avg", "decimal(38,0)", digits(38), average(38, 4)),
    Case("max", "long", LONGS, largest),
    Case("max", "timestamp-millis?", LONGS, largest),
    Case("max", "decimal(38,0)", digits(38), largest),
    Case("max", "boolean", st.booleans(), largest),
    Case("max", "string", TEXTS, largest),
    Case(
        "max",
        "double",
        st.sampled_from([0.0, -0.0, 1.0, -math.inf, math.inf, math.nan]) | st.floats(),
        largest,
    ),
]


def columns(
    rows: list[tuple[int, Any]], argument: FieldType | None
) -> tuple[pl.Series, pl.DataFrame]:
    groups = pl.Series([group for group, _ in rows], dtype=pl.UInt32)
    if argument is None:
        return groups, pl.DataFrame()
    return groups, pl.DataFrame([pl.Series("x", [v for _, v in rows], dtype=argument.dtype)])


def history(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    function: Compensating,
    argument: FieldType | None,
    values: Any,
) -> tuple[pl.DataFrame, Content, int, Content]:
    """Apply random changes; return states, what is in, how many changes, what was ever moved."""
    states = function.init(GROUPS)
    content: Content = [[] for _ in range(GROUPS)]
    moved: Content = [[] for _ in range(GROUPS)]
    rows = st.lists(st.tuples(st.integers(0, GROUPS - 1), values), max_size=6)
    change_count = draw(st.integers(1, 6))
    for _ in range(change_count):
        given_states = states.clone()
        kind = draw(st.sampled_from(["accumulate", "accumulate", "compensate", "merge"]))
        if kind == "compensate":
            pool = [(g, i) for g, inside in enumerate(content) for i in range(len(inside))]
            chosen = draw(st.lists(st.sampled_from(pool), unique=True)) if pool else []
            change = [(g, content[g][i]) for g, i in chosen]
            after = function.compensate(states, *columns(change, argument))
            for g, i in sorted(chosen, reverse=True):
                del content[g][i]
        else:
            change = draw(rows)
            empty = function.init(GROUPS)
            if kind == "merge":
                other = function.accumulate(empty, *columns(change, argument))
                after = function.merge(states, other)
            else:
                after = function.accumulate(states, *columns(change, argument))
            for g, value in change:
                content[g].append(value)
        for g, value in change:
            moved[g].append(value)
        assert states.equals(given_states)  # pure
        states = after
        assert states.schema == physical(function.parts)
        assert states.height == GROUPS
        for name, part in function.parts.items():
            assert part.optional or not states[name].has_nulls()
    return states, content, change_count, moved


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.function}-{case.argument}")
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_oracle_results_are_those_of_the_content_that_is_left(
    case: Case, data: st.DataObject
) -> None:
    argument = None if case.argument is None else FieldType.parse(case.argument)
    function = aggregate_function(case.function, argument is None, argument)
    values = st.none() if argument is None else st.none() | case.values
    states, content, _, _ = history(data.draw, function, argument, values)
    emitted, exact = function.emit(states), function.exact(states)
    assert emitted.dtype == function.result.dtype
    for group, inside in enumerate(content):
        there = inside if argument is None else [v for v in inside if v is not None]
        expected = case.expected(there)
        if exact[group]:
            assert same(emitted[group], expected)
        else:
            assert case.function == "max"
            assert total_order(emitted[group]) > total_order(expected)
    # Where exact, the whole state is that of the content, however it came to be.
    rows = [(g, v) for g, inside in enumerate(content) for v in inside]
    again = function.accumulate(function.init(GROUPS), *columns(rows, argument))
    assert again.filter(exact).equals(states.filter(exact))


DOUBLES = (
    st.floats()
    | st.floats(-1e6, 1e6)
    | st.integers(-5, 5).map(float)
    | st.sampled_from([1e17, -1e300, 1.7e308, 5e-324, math.inf, -math.inf, math.nan])
)


@pytest.mark.parametrize("name", ["sum", "avg"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_oracle_totals_of_doubles_stay_within_the_bound(name: str, data: st.DataObject) -> None:
    argument = FieldType("double", optional=True)
    function = aggregate_function(name, False, argument)
    drawn = history(data.draw, function, argument, st.none() | DOUBLES)
    states, content, change_count, moved = drawn
    emitted = function.emit(states)
    assert function.exact(states).all()
    for group, inside in enumerate(content):
        there = [v for v in inside if v is not None]
        finite = [Fraction(v) for v in there if math.isfinite(v)]
        if not there:
            assert emitted[group] is None
        elif len(finite) < len(there):
            special = sum(v for v in there if not math.isfinite(v))
            assert same(emitted[group], special)
        total = Fraction(states["high"][group]) + Fraction(states["low"][group])
        ever = [abs(Fraction(v)) for v in moved[group] if v is not None and math.isfinite(v)]
        # A merge is two changes: the other state was made by one.
        bound = 2 * change_count * sum(ever) / 2**96 + Fraction(len(ever), 2**1035)
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
    ("name", "star", "argument", "result"),
    [
        ("count", True, None, "long"),
        ("count", False, "double?", "long"),
        ("sum", False, "long", "long?"),
        ("sum", False, "decimal(18,2)", "decimal(28,2)?"),
        ("sum", False, "decimal(30,2)", "decimal(38,2)?"),
        ("sum", False, "double", "double?"),
        ("avg", False, "long", "double?"),
        ("avg", False, "decimal(18,2)", "decimal(22,6)?"),
        ("avg", False, "decimal(38,36)", "decimal(38,38)?"),
        ("max", False, "string", "string?"),
    ],
)
def test_a_result_has_the_type_that_spark_gives_it(
    name: str, star: bool, argument: str | None, result: str
) -> None:
    parsed = None if argument is None else FieldType.parse(argument)
    assert str(aggregate_function(name, star, parsed).result) == result


@pytest.mark.parametrize(
    ("name", "star", "argument", "text"),
    [
        ("sum", False, "string", r"aggregate sum\(string\): needs a long, decimal or double"),
        ("avg", False, "timestamp-millis", r"avg\(timestamp-millis\): needs a long"),
        ("sum", False, "boolean", "cast the argument"),
        ("max", True, None, r"max\(\*\): only count takes \*"),
        ("count", True, "long", r"needs either \* or one argument"),
        ("count", False, None, r"needs either \* or one argument"),
        ("median", False, "long", "needs one of avg, count, max, sum"),
    ],
)
def test_an_argument_that_does_not_suit_is_refused_with_what_would(
    name: str, star: bool, argument: str | None, text: str
) -> None:
    parsed = None if argument is None else FieldType.parse(argument)
    with pytest.raises(AggregateTypeError, match=text):
        aggregate_function(name, star, parsed)


@pytest.mark.parametrize("argument", ["long", "decimal(18,2)", "decimal(38,2)", "double"])
def test_sum_and_average_of_one_argument_share_a_state(argument: str) -> None:
    parsed = FieldType.parse(argument)
    total = aggregate_function("sum", False, parsed)
    average = aggregate_function("avg", False, parsed)
    assert total.state_key == average.state_key
    assert total.parts == average.parts


def test_other_functions_of_one_argument_do_not_share_a_state() -> None:
    keys = {
        aggregate_function(name, False, FieldType("long")).state_key
        for name in ("count", "sum", "max")
    }
    assert len(keys) == 3
