"""Ladders of extremes: how long a state stays exact, and over batches too large for hypothesis."""

import math
import random
from typing import Any

import numpy as np
import polars as pl
import pytest

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.extreme import RUNGS, First, Max, Min
from errata.processors.aggregates.functions import aggregate_function
from errata.processors.aggregates.ladder import Key, bound
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import BY_TIME, columns, first_by, fresh

LONG, TEXT = FieldType("long"), FieldType("string")


def rows(*values: Any) -> tuple[pl.Series, pl.DataFrame]:
    return pl.Series([0] * len(values), dtype=pl.UInt32), pl.DataFrame(
        {"x": pl.Series(values, dtype=pl.Int64)}
    )


@pytest.mark.parametrize("rungs", [1, 2, 4])
def test_as_many_extremes_may_leave_as_there_are_rungs_less_one(rungs: int) -> None:
    smallest = Min(LONG, rungs=rungs)
    states = smallest.init(1)
    for value in (5, 1, 4, 2, 3, 6, 1):
        states = smallest.accumulate(states, *rows(value))
    left = [1, 1, 2, 3, 4, 5]
    for number, value in enumerate(left):
        states = smallest.compensate(states, *rows(value))
        assert smallest.exact(states)[0] is (number < rungs)  # the 1 is there twice
        if number < rungs:
            assert smallest.emit(states)[0] == min(left[number + 1 :])


def test_a_ladder_that_holds_all_rows_is_never_lost() -> None:
    largest = Max(LONG, rungs=2)
    states = largest.accumulate(largest.init(1), *rows(1, 1, 2))
    states = largest.compensate(states, *rows(2))
    assert (largest.exact(states)[0], largest.emit(states)[0]) == (True, 1)
    states = largest.accumulate(states, *rows(0))
    states = largest.compensate(states, *rows(1, 1))
    assert (largest.exact(states)[0], largest.emit(states)[0]) == (True, 0)


def test_what_enters_between_the_rungs_is_known_and_what_enters_behind_them_is_not() -> None:
    largest = Max(LONG, rungs=2)
    states = largest.accumulate(largest.init(1), *rows(1, 5, 9))
    states = largest.accumulate(states, *rows(7))  # 9, 7; 5 falls off
    states = largest.compensate(states, *rows(9))
    assert (largest.exact(states)[0], largest.emit(states)[0]) == (True, 7)
    states = largest.compensate(largest.accumulate(states, *rows(6)), *rows(7))
    assert not largest.exact(states)[0]  # 6, or another that fell off
    states = largest.accumulate(states, *rows(7))
    assert (largest.exact(states)[0], largest.emit(states)[0]) == (True, 7)


def test_a_large_batch_that_leaves_takes_what_is_behind_its_ties_as_well() -> None:
    largest = Max(LONG, rungs=2)
    leaving = rows(*[9] * 20, *[5] * 20)
    states = largest.accumulate(largest.init(1), *rows(1, 5, 5))
    states = largest.accumulate(states, *leaving)
    assert not largest.exact(largest.compensate(states, *rows(*[9] * 20, *[5] * 22)))[0]
    back = largest.compensate(states, *leaving)
    assert (largest.exact(back)[0], largest.emit(back)[0], back["ties"][0]) == (True, 5, 2)


def test_a_replaced_row_of_the_same_keys_shows_its_new_value() -> None:
    first = First(LONG, BY_TIME, rungs=1)
    types = [LONG, *(key.type for key in BY_TIME)]
    states = first.accumulate(first.init(1), *columns([(0, (7, 1, "a")), (0, (8, 2, "b"))], types))
    states = first.compensate(states, *columns([(0, (7, 1, "a"))], types))
    assert not first.exact(states)[0]
    for value in (None, 5):
        entered = first.accumulate(states, *columns([(0, (value, 1, "a"))], types))
        assert first.exact(entered)[0]
        assert first.emit(entered)[0] == value


def test_a_stored_result_has_no_ladder_but_can_be_raised() -> None:
    largest = Max(LONG, rungs=4)
    stored = largest.accumulate(largest.init(1), *rows(1, 5, 9)).select(largest.kept)
    assert stored.columns == ["count", "ties", "value"]
    states = largest.recall(stored)
    assert not largest.exact(largest.compensate(states, *rows(9)))[0]
    raised = largest.accumulate(states, *rows(12, 10))
    back = largest.compensate(raised, *rows(12, 10))
    assert (largest.exact(back)[0], largest.emit(back)[0]) == (True, 9)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("rungs", [1, 2, 4])
def test_some_rows_of_every_group_reach_the_bound_and_not_too_many(
    largest: bool, rungs: int
) -> None:
    drawn = np.random.default_rng(5)
    groups = drawn.integers(0, 7, 20_000) * 3
    values = pl.Series("x", drawn.integers(0, 10**9, 20_000))
    key = Key(LONG, largest=largest)
    reached = groups[key.reaches(values, bound(key, groups, values, rungs=rungs))]
    found = np.bincount(reached, minlength=19)[::3]
    assert (found >= rungs).all()
    assert found.sum() < 7 * rungs * 20


CALLS = [
    (Call("max", (LONG,)), lambda inside: max((row[0] for row in inside), default=None)),
    (Call("min", (LONG,)), lambda inside: min((row[0] for row in inside), default=None)),
    (Call("first", (LONG,), BY_TIME), first_by(False, False)),
    (Call("last", (LONG,), BY_TIME), first_by(True, True)),
]


@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[call.name for call, _ in CALLS])
def test_oracle_large_batches_that_enter_and_leave(call: Call, expected: Any) -> None:
    drawn = random.Random(11)
    function = aggregate_function(call)
    types = [LONG, *(key.type for key in call.order)]
    states = function.init(4)
    content: list[list[Any]] = [[] for _ in range(4)]
    inexact = 0
    for step in range(60):
        most = drawn.choice((6, 40 * step + 1))
        entering = [
            (
                drawn.choice((0, 0, 0, 1, 1, 2)),
                (drawn.randrange(most), drawn.randrange(50), f"{step}-{number}"),
            )
            for number in range(drawn.choice((0, 3, 30, 300)))
        ]
        leaving = []
        for group, inside in enumerate(content):
            drawn.shuffle(inside)
            count = drawn.choice((0, 1, len(inside) // 2, len(inside) * 4 // 5, len(inside)))
            leaving += [(group, inside.pop()) for _ in range(min(count, len(inside)))]
        states = function.compensate(states, *columns(leaving, types))
        states = function.accumulate(states, *columns(entering, types))
        for group, row in entering:
            content[group].append(row)
        exact, emitted = function.exact(states), function.emit(states)
        inexact += len(exact) - exact.sum()
        kept = states.select(function.kept).filter(exact)
        assert kept.equals(fresh(function, content, types).select(function.kept).filter(exact))
        for group, inside in enumerate(content):
            assert not exact[group] or emitted[group] == expected(inside)
            assert states["count"][group] == len(inside)
            if not inside:
                assert states[group].equals(function.init(1))
    assert 0 < inexact < 120


def test_a_live_state_has_as_many_rungs_as_it_says() -> None:
    assert sum(name.startswith("ties") for name in Max(TEXT).parts) == RUNGS


@pytest.mark.parametrize("rungs", [1, 2, 4])
def test_oracle_floods_of_few_values_leave_no_wrong_count_of_ties(rungs: int) -> None:
    for seed in range(40):
        drawn = random.Random(seed)
        largest = Max(LONG, rungs=rungs)
        states, inside = largest.init(1), list[int]()
        for _ in range(12):
            entering = [drawn.randrange(4) for _ in range(drawn.choice((0, 1, 2, 20)))]
            top = max(inside, default=None) if drawn.random() < 0.7 else drawn.randrange(4)
            leaving = [value for value in inside if value == top]
            inside = [value for value in inside if value != top] + entering
            states = largest.accumulate(
                largest.compensate(states, *rows(*leaving)), *rows(*entering)
            )
            if largest.exact(states)[0]:
                again = largest.accumulate(largest.init(1), *rows(*inside))
                assert states.select(largest.kept).equals(again.select(largest.kept))


LARGEST = Max(FieldType("long"), rungs=1)


def of_any(*values: Any) -> tuple[pl.Series, pl.DataFrame]:
    return pl.Series([0] * len(values), dtype=pl.UInt32), pl.DataFrame({"x": values})


def holding(*values: int) -> pl.DataFrame:
    return LARGEST.accumulate(LARGEST.init(1), *of_any(*values))


def seen(states: pl.DataFrame) -> tuple[int | None, bool]:
    return LARGEST.emit(states)[0], LARGEST.exact(states)[0]


BOUND_9 = LARGEST.compensate(holding(5, 9), *of_any(9))


def test_the_largest_is_exact_while_a_tie_is_left() -> None:
    assert seen(LARGEST.compensate(holding(9, 9, 5), *of_any(9))) == (9, True)


def test_a_lowered_largest_is_a_bound_and_not_exact() -> None:
    assert seen(BOUND_9) == (9, False)


def test_a_bound_stays_when_a_value_below_it_enters_or_leaves() -> None:
    more = LARGEST.accumulate(BOUND_9, *of_any(7))
    assert seen(more) == (9, False)
    assert seen(LARGEST.compensate(more, *of_any(7))) == (9, False)


def test_a_bound_becomes_exact_when_a_value_not_below_it_enters() -> None:
    assert seen(LARGEST.accumulate(BOUND_9, *of_any(9))) == (9, True)
    assert seen(LARGEST.accumulate(BOUND_9, *of_any(12, 12))) == (12, True)
    assert LARGEST.accumulate(BOUND_9, *of_any(12, 12))["ties"][0] == 2


def test_an_emptied_group_is_null_and_exact() -> None:
    assert seen(LARGEST.compensate(BOUND_9, *of_any(5))) == (None, True)


def test_a_merge_is_exact_iff_the_larger_value_is_there() -> None:
    assert seen(LARGEST.merge(BOUND_9, holding(8))) == (9, False)
    assert seen(LARGEST.merge(BOUND_9, holding(9))) == (9, True)
    assert seen(LARGEST.merge(holding(10), BOUND_9)) == (10, True)
    assert seen(LARGEST.merge(BOUND_9, LARGEST.init(1))) == (9, False)
    assert seen(LARGEST.merge(LARGEST.init(1), LARGEST.init(1))) == (None, True)


def test_text_is_ordered_by_its_bytes() -> None:
    largest = Max(FieldType("string"))
    states = largest.accumulate(largest.init(1), *of_any("Z", "\uffff", "a", "\U0001f600"))
    assert largest.emit(states)[0] == "\U0001f600"


def test_nan_is_the_largest_double_and_can_leave_while_a_tie_is_left() -> None:
    largest = Max(FieldType("double"))
    states = largest.accumulate(largest.init(1), *of_any(math.nan, math.inf, math.nan))
    assert states["ties"][0] == 2
    assert math.isnan(largest.emit(largest.compensate(states, *of_any(math.nan)))[0])


def test_zeros_of_both_signs_are_ties_and_come_out_as_plus() -> None:
    largest = Max(FieldType("double"))
    states = largest.accumulate(largest.init(1), *of_any(-0.0))
    assert math.copysign(1.0, largest.emit(states)[0]) == 1.0
    states = largest.accumulate(states, *of_any(0.0))
    assert largest.exact(largest.compensate(states, *of_any(0.0)))[0]


def test_a_signalling_nan_is_a_nan_and_no_warning() -> None:
    """The tests turn warnings into errors."""
    signalling = pl.Series(np.array([0x7FF0000000000001], np.uint64).view(np.float64))
    largest = Max(FieldType("double"), rungs=2)
    states = largest.accumulate(
        largest.init(1), pl.Series([0], dtype=pl.UInt32), pl.DataFrame({"x": signalling})
    )
    assert math.isnan(largest.emit(states)[0])
