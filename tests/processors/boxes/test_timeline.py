"""Unions of runs and of what slides over them, against plain loops; and how many it takes."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.boxes.timeline import Timeline, TwoStacks, append_run, prefixes, unions

NONE = pl.DataFrame({"held": [[]]}, schema={"held": pl.List(pl.Int64)})


def merge(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Unions that show what they are of, and in which order."""
    return pl.DataFrame([one["held"].list.concat(other["held"]).alias("held")])


def states(numbers: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"held": [[n] for n in numbers]}, schema=NONE.schema)


@given(st.lists(st.booleans(), max_size=70))
def test_oracle_prefixes_of_runs(starts: list[bool]) -> None:
    starts = [True, *starts[1:]] if starts else []
    found = prefixes(states(list(range(len(starts)))), NONE, np.array(starts, dtype=bool), merge)
    first, wanted = 0, []
    for row, start in enumerate(starts):
        first = row if start else first
        wanted.append(list(range(first, row + 1)))
    assert found["held"].to_list() == wanted


_instants = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=8)


@pytest.mark.parametrize("by", [("g",), ()])
@given(front=_instants, later=st.lists(_instants, min_size=1, max_size=3), size=st.integers(30, 45))
def test_oracle_windows_over_two_stacks(
    by: tuple[str, ...], front: list[Any], later: list[list[Any]], size: int
) -> None:
    """Instants 0 to 9 in front, then 10 to 19, 20 to 29 and so on: all begin before 10."""
    everything: list[tuple[Any, int]] = []

    def line(instants: list[tuple[Any, int]], onward: int) -> Timeline:
        if not by:
            instants = [(None, at) for _, at in instants]
        new = sorted({(g, at + onward) for g, at in instants}, key=repr)
        everything.extend(new)
        kinds = {"g": pl.String, "at": pl.Int64}
        frame = pl.DataFrame(new, schema=kinds, orient="row")
        held = states([at for _, at in new])
        return Timeline(frame.with_columns(held), by=by, at="at")

    stacks = TwoStacks.build(line(front, 0), 10, by=by, empty=NONE, merge=merge)
    for number, instants in enumerate(later):
        ending = line(instants, 10 * (number + 1))
        found, stacks = stacks.extend(ending, size, merge)
        for (group, at), held in zip(
            ending.frame.select("g", "at").rows(), found["held"].to_list(), strict=True
        ):
            inside = [a for g, a in everything if g == group and at - size < a <= at]
            assert sorted(held) == sorted(inside)


@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_an_instant_is_merged_a_few_times_however_many_are_in_a_window(size: int) -> None:
    merged = 0

    def add(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        nonlocal merged
        merged += one.height
        return one + other

    none, step, upto = pl.DataFrame({"n": [0]}), 50, 3 * size
    frame = pl.DataFrame({"at": range(upto), "n": [1] * upto})
    stacks = None
    for at in range(0, upto, step):
        if stacks is None or at + step - 1 - size >= stacks.turning_point:
            line = Timeline(frame[max(0, at - size) : at], by=(), at="at")
            stacks = TwoStacks.build(line, at, by=(), empty=none, merge=add)
        line = Timeline(frame[at : at + step], by=(), at="at")
        found, stacks = stacks.extend(line, size, add)
        assert found["n"].to_list() == [min(t + 1, size) for t in range(at, at + step)]
    assert merged <= 7 * upto


@given(st.lists(st.integers(0, 5), max_size=60))
def test_runs_are_few_and_hold_all_rows_in_order(heights: list[int]) -> None:
    runs: tuple[pl.DataFrame, ...] = (pl.DataFrame({"n": []}, schema={"n": pl.Int64}),)
    done = 0
    for height in heights:
        runs = append_run(
            runs, pl.DataFrame({"n": range(done, done + height)}, schema={"n": pl.Int64})
        )
        done += height
        assert pl.concat(runs)["n"].to_list() == list(range(done))
        assert len(runs) <= 2 + done.bit_length()


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=10),
)
def test_oracle_unions_over_runs(numbers: list[int], runs: list[tuple[int, int]]) -> None:
    bounds = [tuple(min(edge, len(numbers)) for edge in sorted(run)) for run in runs]
    first, end = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    kinds = {"n": pl.Int64, "held": pl.List(pl.Int64)}
    states = pl.DataFrame({"n": numbers, "held": [[n] for n in numbers]}, schema=kinds)
    none = pl.DataFrame({"n": [0], "held": [[]]}, schema=kinds)

    def merge(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        held = one["held"].list.concat(other["held"])
        return pl.DataFrame([one["n"] + other["n"], held.alias("held")])

    found = unions(states, none, first, end, merge)
    assert found["n"].to_list() == [sum(numbers[i:j]) for i, j in bounds]
    assert found["held"].list.sort().to_list() == [sorted(numbers[i:j]) for i, j in bounds]


_rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(-9, 9) | st.integers(-(2**53), 2**53),
)


@given(st.lists(_rows, max_size=12), st.lists(_rows, max_size=6), st.integers(0, 9))
def test_oracle_runs_are_the_rows_of_the_group_in_a_range(
    rows: list[tuple[Any, ...]], sought: list[tuple[Any, ...]], size: int
) -> None:
    kinds = {"group": pl.String, "at": pl.Int64}
    line = Timeline(pl.DataFrame(rows, schema=kinds, orient="row"), by=["group"], at="at")
    first, end = line.runs(pl.DataFrame(sought, schema=kinds, orient="row"), -size, 1)
    for (group, at), i, j in zip(sought, first, end, strict=True):
        wanted = sorted(row[1] for row in rows if row[0] == group and at - size <= row[1] <= at)
        found = line.frame[int(i) : int(j)]
        assert found["at"].to_list() == wanted
        assert found["group"].to_list() == [group] * len(wanted)
