"""Boxes that go by the order of tuples, against loops over all tuples.

``ERRATA_LAWS_EXAMPLES=100`` tries so many series of epochs a case instead of a few.
"""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata import Network, hopping, sliding, tumbling
from errata.processors.boxes.counting import Counting
from errata.processors.boxes.lag import Lag
from errata.processors.compile.compiler import type_boxes
from errata.processors.windows.row_windows import RowWindow, SlidingRows
from tests.processors.boxes.trial import (
    FIELDS,
    FOREVER,
    RESULTS,
    Content,
    Trial,
    Tuple,
    plain_results,
    run,
)

FEW = 6
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
WINDOWS: dict[str, RowWindow] = {
    "tumbling": tumbling(rows=3),
    "hopping": hopping(rows=5, every=2),
    "each alone": tumbling(rows=1),
    "sliding": sliding(rows=3),
    "sliding over one": sliding(rows=1),
}
seen: Counter[str] = Counter()


def typed(declare: Any) -> Any:
    """Return the box that is declared on a source of `FIELDS`."""
    net = Network("boxes")
    source = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", partition_by=[], keep="1d"
    )
    declare(source)
    found = type_boxes(net)
    assert not found.faults, found.faults
    return found.boxes["made"]


def lag(offset: int, by: tuple[str, ...] = ("desk",)) -> Lag:
    found = typed(
        lambda s: s.lag("made", by=by, offset=offset, was="amount", seen="unix_millis(at)")
    )
    assert isinstance(found, Lag)
    return found


def counting(window: RowWindow, emit: str, by: tuple[str, ...], mode: str) -> Counting:
    found = typed(lambda s: s.aggregate("made", by=by, window=window, emit=emit, fields=RESULTS))
    assert isinstance(found, Counting)
    return replace(found, mode=mode)


# -------------------------------------------------------------------------------- plain references


def lines(box: Any, content: Content) -> list[tuple[tuple[Any, ...], list[Tuple]]]:
    """Return the groups, and the tuples of each in order."""
    groups: dict[tuple[Any, ...], list[Tuple]] = {}
    for t in sorted(content.values(), key=lambda t: (t["at"], t["key"])):
        groups.setdefault(tuple(t[name] for name in box.by), []).append(t)
    return list(groups.items())


def lagged(box: Lag, content: Content, wm: int) -> list[tuple[Any, ...]]:
    found = []
    for _, line in lines(box, content):
        for place, t in enumerate(line):
            other = line[place - box.offset] if place >= box.offset else {}
            found.append((*(t[name] for name in FIELDS), other.get("amount"), other.get("at")))
    return sorted(found, key=repr)


def counted(box: Counting, content: Content, wm: int) -> list[tuple[Any, ...]]:
    found, size = [], box.window.rows
    for group, line in lines(box, content):
        for place, t in enumerate(line):
            if isinstance(box.window, SlidingRows):
                inside = line[max(0, place + 1 - size) : place + 1]
                key, full = (*group, t["key"], t["at"]), True
            elif place % box.window.every == 0:
                inside = line[place : place + size]
                key, full = (*group, place, place + size), len(inside) == size
            else:
                continue
            if box.on_update or (full and inside[-1]["at"] < wm):
                found.append((*key, *plain_results([each["amount"] for each in inside])))
    return sorted(found, key=repr)


# -------------------------------------------------------------------------------- random epochs

tuples = st.builds(
    dict,
    at=st.integers(-4, 4).map(lambda at: 10 * at),
    desk=st.sampled_from(["a", "a", "b", None]),
    amount=st.none() | st.integers(-3, 3),
)
keys = st.integers(0, 11).map(str)
changes = st.dictionaries(keys, st.none() | tuples, max_size=6)
epochs = st.lists(st.tuples(changes, st.integers(0, 25), st.booleans()), max_size=10)
"""Many tuples at one event time; as in `trial.epochs` otherwise."""

law_settings = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == FEW,
    database=None,
    phases=list(Phase) if EXAMPLES > FEW else [Phase.generate],
)


@pytest.mark.parametrize("offset", [1, 3])
def test_oracle_a_lag_tells_what_stands_before_each_tuple(offset: int) -> None:
    @law_settings
    @given(epochs)
    def law(steps: list[Any]) -> None:
        by = ("desk",) if len(steps) % 2 else ()
        seen.update(run([lag(offset, by)], steps, lagged))

    law()


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("window", WINDOWS)
def test_oracle_windows_that_count_hold_so_many_tuples(window: str, emit: str) -> None:
    @law_settings
    @given(epochs)
    def law(steps: list[Any]) -> None:
        by = ("desk",) if len(steps) % 2 else ()
        boxes = [counting(WINDOWS[window], emit, by, mode) for mode in ("adaptive", "resident")]
        seen.update(run(boxes, steps, counted))

    law()


def test_the_epochs_had_questions_but_a_resident_box_had_none() -> None:
    if not seen:
        pytest.skip("nothing was run before")
    assert min(seen["lag inputs"], seen["adaptive inputs"], seen["adaptive closed"]) > 9
    assert seen["resident inputs"] == 0


# -------------------------------------------------------------------------------- what is kept


def t(key: str, at: int, amount: int = 1, desk: str = "a") -> dict[str, Any]:
    return {key: {"key": key, "at": at, "amount": amount, "desk": desk}}


@pytest.mark.parametrize("box", [lag(2), counting(sliding(rows=3), "on_update", ("desk",), "")])
def test_what_comes_in_order_asks_nothing_and_only_the_last_tuples_are_kept(box: Any) -> None:
    trial = Trial(box, lagged if isinstance(box, Lag) else counted)
    for number in range(50):
        trial.epoch(t(f"{number:02}", number), number - 4)
    assert trial.seen["inputs"] == 0
    assert trial.live.states["key"].to_list() == ["43", "44", "45", "46", "47", "48", "49"]
    trial.epoch(t("late", 46), 45)  # the watermark has not passed it yet
    assert trial.seen["inputs"] == 0
    trial.epoch(t("later", 3), 45)
    assert (trial.seen["inputs"], trial.seen["replayed"]) == (1, 52)


def test_a_deleted_last_tuple_leaves_too_few_and_its_group_is_asked_for_once() -> None:
    trial = Trial(lag(1), lagged)
    trial.epoch({k: v for n in range(9) for k, v in t(str(n), n).items()}, 100)
    trial.epoch(t("x", 5, desk="b"), 100)
    trial.epoch({"8": None}, 100)
    assert (trial.seen["inputs"], trial.seen["replayed"]) == (1, 8)
    trial.epoch(t("9", 9), 100)
    assert trial.seen["inputs"] == 1


def test_a_tuple_that_comes_between_revises_no_sliding_window_but_those_that_hold_it() -> None:
    trial = Trial(counting(sliding(rows=3), "on_update", ("desk",), "adaptive"), counted)
    trial.epoch({k: v for n in range(9) for k, v in t(str(n), n).items()}, 0)
    revised = trial.epoch(t("3x", 3, 10), 0)
    assert sorted(pl.concat([revised["after.key"]])) == ["3x", "4", "5"]


def test_full_windows_wait_for_the_watermark_and_others_for_more() -> None:
    trial = Trial(counting(tumbling(rows=2), "on_close", (), "adaptive"), counted)
    trial.epoch(t("a", 1) | t("b", 2) | t("c", 3), 2)
    assert trial.told.height == 0
    trial.epoch({}, 3)
    assert trial.told["window_start"].to_list() == [0]
    trial.epoch({}, FOREVER)
    assert trial.told["window_start"].to_list() == [0]
    trial.epoch(t("d", 4), FOREVER)
    assert sorted(trial.told["window_start"]) == [0, 2]
    trial.epoch({"a": None}, FOREVER)
    assert trial.told.select("window_start", "__at").rows() == [(0, 3)]
