"""Sliding windows: one ends with each instant that has tuples."""

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.boxes.timeline import Timeline, unions
from errata.processors.windows.time_windows import sliding
from tests.processors.boxes.trial import Trial, make


def t(key: str, at: int, amount: int | None = 1, desk: str = "a") -> dict[str, Any]:
    return {key: {"key": key, "at": at, "amount": amount, "desk": desk}}


def shown(trial: Trial) -> list[tuple[Any, ...]]:
    """Return (event time, n, total) of every result that is there."""
    at = (pl.col("window_end") - 1).alias("at")
    return sorted(trial.told.select(at, "n", "total").rows())


def test_a_result_for_each_instant_once_the_watermark_has_passed_it() -> None:
    """Windows of 5.

    0   1   2   3   4   5   6   7   8   9
            ^ 2     ^ 4 ^ 5         ^ 8
    |-------------------|  5's window holds 2, 4, 5
                    |-------------------|  8's holds 4, 5, 8
    """
    trial = Trial(make(sliding(5), mode="downstream"))
    changes = t("w", 2, 1) | t("x", 4, 10) | t("y", 5, 100) | t("z", 8, 1000)
    trial.epoch(changes, 5)
    assert shown(trial) == [(2, 1, 1), (4, 2, 11)]
    trial.epoch({}, 9)
    assert shown(trial) == [(2, 1, 1), (4, 2, 11), (5, 3, 111), (8, 3, 1110)]
    revised = trial.epoch(t("x", 4, 20), 9)
    assert revised["op"].to_list() == [2, 2, 2]
    assert shown(trial) == [(2, 1, 1), (4, 2, 21), (5, 3, 121), (8, 3, 1120)]


def test_a_result_goes_with_the_last_tuple_at_its_instant_and_comes_with_the_first() -> None:
    for mode in ("upstream", "downstream", "resident"):
        trial = Trial(make(sliding(5), mode=mode))
        trial.epoch(t("w", 2) | t("x", 4) | t("y", 4) | t("z", 8), 20)
        trial.epoch({"x": None}, 20)
        assert [at for at, *_ in shown(trial)] == [2, 4, 8]
        trial.epoch({"y": None}, 20)
        assert [at for at, *_ in shown(trial)] == [2, 8]
        trial.epoch(t("v", 6), 20)
        assert shown(trial) == [(2, 1, 1), (6, 2, 2), (8, 2, 2)]


def test_downstream_compensates_what_was_there_and_replays_only_what_appears() -> None:
    trial = Trial(make(sliding(5), mode="downstream"))
    trial.epoch(t("w", 2) | t("x", 4) | t("z", 8), 20)
    trial.epoch(t("x", 4, 7), 20)
    assert (trial.seen["fetched"], trial.seen["replayed"]) == (2, 0)
    trial.epoch(t("v", 6), 20)
    assert (trial.seen["fetched"], trial.seen["replayed"]) == (3, 3)  # 8's; 2, 4, 6


def test_a_filter_by_the_window_makes_all_that_a_revision_reaches_be_replayed() -> None:
    """The window of 5 is stored, those of 6 and 7 are hidden: only a replay tells of them."""
    trial = Trial(make(sliding(10), mode="downstream", filtered="unix_millis(window_start) = -4"))
    trial.epoch(t("w", 5) | t("x", 6) | t("z", 7), 20)
    trial.epoch(t("w", 5, 9), 20)
    assert shown(trial) == [(5, 1, 9), (6, 2, 10), (7, 3, 11)]


def test_an_instant_whose_largest_is_lowered_too_often_is_replayed_alone() -> None:
    for emit in ("on_close", "on_update"):
        trial = Trial(make(sliding(5), mode="downstream", emit=emit, by=()))
        many = {k: v for n in range(9) for k, v in t(str(n), 5, n).items()}
        trial.epoch(many | t("w", 3), 5)
        trial.epoch({str(n): None for n in range(1, 9)}, 5)  # more than a state remembers
        assert (trial.seen["inputs"], trial.seen["replayed"]) == (1, 1)
        trial.epoch({}, 10)
        assert shown(trial) == [(3, 1, 1), (5, 2, 1)]


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
