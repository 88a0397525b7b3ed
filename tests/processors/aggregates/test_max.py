"""The largest value, and when it is no longer known."""

import math
from typing import Any

import polars as pl

from errata.processors.aggregates.max import Max
from errata.schemas.fields import FieldType

LARGEST = Max(FieldType("long"), rungs=1)


def rows(*values: Any) -> tuple[pl.Series, pl.DataFrame]:
    return pl.Series([0] * len(values), dtype=pl.UInt32), pl.DataFrame({"x": values})


def holding(*values: int) -> pl.DataFrame:
    return LARGEST.accumulate(LARGEST.init(1), *rows(*values))


def seen(states: pl.DataFrame) -> tuple[int | None, bool]:
    return LARGEST.emit(states)[0], LARGEST.exact(states)[0]


BOUND_9 = LARGEST.compensate(holding(5, 9), *rows(9))


def test_the_largest_is_exact_while_a_tie_is_left() -> None:
    assert seen(LARGEST.compensate(holding(9, 9, 5), *rows(9))) == (9, True)


def test_a_lowered_largest_is_a_bound_and_not_exact() -> None:
    assert seen(BOUND_9) == (9, False)


def test_a_bound_stays_when_a_value_below_it_enters_or_leaves() -> None:
    more = LARGEST.accumulate(BOUND_9, *rows(7))
    assert seen(more) == (9, False)
    assert seen(LARGEST.compensate(more, *rows(7))) == (9, False)


def test_a_bound_becomes_exact_when_a_value_not_below_it_enters() -> None:
    assert seen(LARGEST.accumulate(BOUND_9, *rows(9))) == (9, True)
    assert seen(LARGEST.accumulate(BOUND_9, *rows(12, 12))) == (12, True)
    assert LARGEST.accumulate(BOUND_9, *rows(12, 12))["ties"][0] == 2


def test_an_emptied_group_is_null_and_exact() -> None:
    assert seen(LARGEST.compensate(BOUND_9, *rows(5))) == (None, True)


def test_a_merge_is_exact_iff_the_larger_value_is_there() -> None:
    assert seen(LARGEST.merge(BOUND_9, holding(8))) == (9, False)
    assert seen(LARGEST.merge(BOUND_9, holding(9))) == (9, True)
    assert seen(LARGEST.merge(holding(10), BOUND_9)) == (10, True)
    assert seen(LARGEST.merge(BOUND_9, LARGEST.init(1))) == (9, False)
    assert seen(LARGEST.merge(LARGEST.init(1), LARGEST.init(1))) == (None, True)


def test_text_is_ordered_by_its_bytes() -> None:
    largest = Max(FieldType("string"))
    states = largest.accumulate(largest.init(1), *rows("Z", "\uffff", "a", "\U0001f600"))
    assert largest.emit(states)[0] == "\U0001f600"


def test_nan_is_the_largest_double_and_can_leave_while_a_tie_is_left() -> None:
    largest = Max(FieldType("double"))
    states = largest.accumulate(largest.init(1), *rows(math.nan, math.inf, math.nan))
    assert states["ties"][0] == 2
    assert math.isnan(largest.emit(largest.compensate(states, *rows(math.nan)))[0])


def test_zeros_of_both_signs_are_ties_and_come_out_as_plus() -> None:
    largest = Max(FieldType("double"))
    states = largest.accumulate(largest.init(1), *rows(-0.0))
    assert math.copysign(1.0, largest.emit(states)[0]) == 1.0
    states = largest.accumulate(states, *rows(0.0))
    assert largest.exact(largest.compensate(states, *rows(0.0)))[0]
