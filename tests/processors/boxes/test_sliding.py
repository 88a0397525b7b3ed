"""Sliding windows: one ends with each instant that has tuples; in order, and not."""

import math
import os
from collections import Counter
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata import Network, sliding
from errata.processors.boxes.sliding import InOrder
from errata.processors.boxes.timeline import TwoStacks
from errata.testing import Driver
from tests.processors.boxes.trial import Trial, make, run


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


FEW = 5
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
seen: Counter[str] = Counter()

_new = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9)),
    max_size=5,
)
_revised = st.none() | st.tuples(st.integers(0, 40), st.none() | st.integers(-9, 9))
_epochs = st.lists(
    st.tuples(_new, _revised, st.booleans(), st.sampled_from([0, 0, 0, 3])), max_size=14
)


def steps_of(epochs: list[Any], base: int) -> list[tuple[Any, ...]]:
    """Return steps of `run`: tuples that come in order, now and then an old one that changes."""
    steps, at, count, wm = [], base, 0, base
    known: dict[str, Any] = {}
    for new, revised, restarts, lag in epochs:
        changes: dict[str, Any] = {}
        for onward, desk, amount in new:
            at += onward
            changes[f"k{count}"] = {"at": at, "desk": desk, "amount": amount}
            count += 1
        if revised is not None and revised[0] < count and restarts:
            key = f"k{revised[0]}"
            known |= changes
            changes[key] = known[key] | {"amount": revised[1]}
        known |= changes
        steps.append((changes, max(0, at - lag - wm), restarts))
        wm = max(wm, at - lag)
    return steps


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize(("by", "written"), [(("desk",), True), ((), False)])
def test_modes_agree_with_a_plain_reference_over_tuples_in_order(
    by: tuple[str, ...], emit: str, written: bool
) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=EXAMPLES == FEW,
        database=None,
        phases=list(Phase) if EXAMPLES > FEW else [Phase.generate],
    )
    @given(_epochs, st.sampled_from([7, 15]))
    def law(epochs: list[Any], size: int) -> None:
        ways = ("upstream", "downstream", "resident")
        boxes = [make(sliding(size), mode=m, emit=emit, by=by, written=written) for m in ways]
        run(boxes, steps_of(epochs, -40))

    extend, build = TwoStacks.extend, TwoStacks.build

    def follow(self: TwoStacks, *given: Any) -> Any:
        seen["extend"] += 1
        seen["groups"] = max(seen["groups"], self.groups.height)
        return extend(self, *given)

    def turn(*given: Any, **named: Any) -> Any:
        seen["build"] += 1
        return build(*given, **named)

    with (
        mock.patch.object(TwoStacks, "extend", follow),
        mock.patch.object(TwoStacks, "build", turn),
    ):
        law()


def test_the_epochs_were_in_order_often_enough() -> None:
    if not seen:
        pytest.skip("the epochs were not run")
    assert seen["extend"] > seen["build"] > 30
    assert seen["groups"] == 3


def test_what_is_kept_is_two_windows_at_most_and_the_stacks_one() -> None:
    """L7: ten tuples each ten ms, and the watermark with them."""
    trial = Trial(make(sliding(100), mode="upstream", by=()))
    trial.check = lambda: None  # type: ignore[method-assign]
    for at in range(0, 1_000, 10):
        new = {
            str(t): {"key": str(t), "at": t, "desk": None, "amount": t} for t in range(at, at + 10)
        }
        trial.epoch(new, at + 10)
        assert isinstance(trial.live, InOrder)
        assert trial.live.height <= 210
        assert trial.live.stacks is not None
        assert trial.live.stacks.suffixes.height <= 101
    assert trial.told.height == 1_000


def test_sums_of_doubles_are_the_nearest_ones_however_much_has_left() -> None:
    """A running sum that 1e17 went through would have lost the ones."""
    net = Network("sums")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "x": "double"},
        identity=["key"],
        event_time="at",
        partition_by=[],
        keep="1d",
    )
    trades.aggregate("sums", window=sliding(20), total="sum(x)", mean="avg(x)")
    values = [1e17 if at % 13 == 0 else 0.1 * at for at in range(200)]
    with Driver(net) as driver:
        for at, x in enumerate(values):
            after = {"key": str(at), "at": at, "x": x}
            driver.send("trades", {"op": "insert", "after": after})
            if at % 7 == 0:
                driver.close_epoch()
        driver.end()
        found = sorted((row["window_end"], row["total"]) for row in driver.table("sums"))
    sums = [math.fsum(values[max(0, at - 19) : at + 1]) for at in range(200)]
    assert found == [(at + 1, total) for at, total in enumerate(sums)]


def test_states_with_lists_make_no_stacks() -> None:
    net = Network("medians")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "x": "long"},
        identity=["key"],
        event_time="at",
        partition_by=[],
        keep="1d",
    )
    trades.aggregate("medians", window=sliding(20), middle="median(x)")
    with Driver(net) as driver, mock.patch.object(TwoStacks, "build", None):
        for at in range(50):
            after = {"key": str(at), "at": at, "x": at}
            driver.send("trades", {"op": "insert", "after": after})
            if at % 7 == 0:
                driver.close_epoch()
        driver.end()
        rows = sorted(driver.table("medians"), key=lambda row: row["window_end"])
    assert [row["middle"] for row in rows] == [(max(0, at - 19) + at) / 2 for at in range(50)]
