"""Functions by value: what they are given, what they may return, and what is told if they don't."""

from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from errata import Compensating, CompensatingByValue
from errata.processors.aggregates.user_function import UserFunction
from errata.processors.expressions.errors import UserFunctionError
from errata.schemas.fields import FieldType
from tests.laws.user_functions import Dot, SlowDot, SlowPeak

GROUPS = pl.Series([0, 2, 0], dtype=pl.UInt32)
LONG = FieldType("long")


class Median(CompensatingByValue):
    """The value in the middle, of a list of all."""

    result = "decimal(9,1)?"
    parts = {"values": pl.List(pl.Int64), "last": "date?"}  # noqa: RUF012

    def init(self) -> tuple[Any, ...]:
        return [], None

    def accumulate(self, state: tuple[Any, ...], amount: Decimal, day: date) -> tuple[Any, ...]:
        assert isinstance(amount, Decimal)
        assert type(day) is date
        return sorted([*state[0], int(amount * 100)]), day

    def compensate(self, state: tuple[Any, ...], amount: Decimal, day: date) -> tuple[Any, ...]:
        state[0].remove(int(amount * 100))
        return state

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return sorted(one[0] + other[0]), one[1]

    def emit(self, state: tuple[Any, ...]) -> Decimal | None:
        return Decimal(state[0][len(state[0]) // 2]) / 100 if state[0] else None


def test_values_are_those_that_python_functions_get() -> None:
    median = UserFunction(
        Median("amount", "day"), list(map(FieldType.parse, ("decimal(9,2)", "date")))
    )
    rows = pl.DataFrame(
        {"0": [110, 225, 340], "1": [1, 2, 3]}, schema={"0": pl.Int128, "1": pl.Int32}
    )
    states = median.accumulate(median.init(3), GROUPS, rows)
    assert median.emit(states).to_list() == [34, None, 23]  # half up
    assert states["last"].to_list() == [3, None, 2]
    left = median.compensate(states, GROUPS[2:], rows[2:])
    assert median.emit(left).to_list() == [11, None, 23]
    assert median.emit(median.merge(left, states)).to_list() == [11, None, 23]
    assert states["values"].to_list() == [[110, 340], [], [225]]
    assert median.kept == ()


@pytest.mark.parametrize("arguments", [("a", "b"), ("b", "a")])
def test_a_function_by_value_is_the_one_by_columns(arguments: tuple[str, str]) -> None:
    slow, fast = UserFunction(SlowDot(*arguments), [LONG, LONG]), UserFunction(Dot(*arguments))
    rows = pl.DataFrame({"0": [3, 4, 5], "1": [7, -8, 9]})
    states: list[list[Any]] = []
    for function in (slow, fast):
        one = function.accumulate(function.init(3), GROUPS, rows)
        other = function.compensate(one, GROUPS[1:], rows[1:])
        merged = function.merge(one, other)
        states.append([one.rows(), other.rows(), merged.rows(), function.emit(merged).to_list()])
    assert states[0] == states[1]


def test_a_plan_shows_that_it_is_python() -> None:
    assert UserFunction(SlowPeak("size")).text.startswith("python:tests.laws.user_functions.Slow")


def test_it_may_be_without_arguments() -> None:
    ones = type("Ones", (SlowDot,), {"accumulate": lambda self, state: (state[0] + 1,)})
    count = UserFunction(ones(), [])
    assert count.accumulate(count.init(3), GROUPS, pl.DataFrame())["sum"].to_list() == [2, 0, 1]


@pytest.mark.parametrize(
    ("method", "wrong", "text"),
    [
        ("accumulate", lambda *_: [1], r"accumulate: raised TypeError: .*\[1\]; needs a tuple of"),
        ("accumulate", lambda *_: (1, 2), "needs a tuple of the parts sum"),
        ("accumulate", lambda *_: ("1",), "returned '1', a str; needs a long"),
        ("compensate", lambda *_: (None,), "compensate: raised TypeError: returned None, but its"),
        ("merge", lambda *_: 1 / 0, "merge: raised ZeroDivisionError"),
        ("emit", lambda *_: 2**63, "emit: raised ValueError: returned more than a long holds"),
        ("init", lambda *_: None, "init: raised TypeError: returned None; needs a tuple"),
    ],
)
def test_what_it_returns_that_it_must_not_is_told(method: str, wrong: Any, text: str) -> None:
    rows = pl.DataFrame({"0": [3, 4, 5], "1": [7, -8, 9]})
    dot = UserFunction(SlowDot("a", "b"), [LONG, LONG])
    states = dot.init(3)
    dot = UserFunction(type("Broken", (SlowDot,), {method: wrong})("a", "b"), [LONG, LONG])
    with pytest.raises(UserFunctionError, match=text):
        {
            "init": lambda: dot.init(3),
            "accumulate": lambda: dot.accumulate(states, GROUPS, rows),
            "compensate": lambda: dot.compensate(states, GROUPS, rows),
            "merge": lambda: dot.merge(states, states),
            "emit": lambda: dot.emit(states),
        }[method]()


def test_the_row_that_it_fails_on_is_told() -> None:
    picky = type("Picky", (SlowDot,), {"accumulate": lambda self, s, a, b: (s[0] + 1 // (a - 4),)})
    dot = UserFunction(picky("a", "b"), [LONG, LONG])
    with pytest.raises(UserFunctionError) as caught:
        dot.accumulate(dot.init(3), GROUPS, pl.DataFrame({"0": [3, 4, 5], "1": [7, -8, 9]}))
    assert caught.value.row == 1


def test_both_kinds_are_told_apart() -> None:
    assert not issubclass(CompensatingByValue, Compensating)
