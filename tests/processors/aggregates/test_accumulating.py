"""A function that can't compensate: what a row has left is not exact until it is replayed."""

from typing import Any

import polars as pl
import pytest

from errata import Network, NetworkError, sliding, tumbling
from errata.processors.aggregates.user_function import Accumulating
from errata.processors.compile.compiler import compile_network
from tests.laws.user_functions import Bits, SlowPeak
from tests.processors.aggregates.test_modes import FIELDS
from tests.processors.boxes.trial import Trial, make

GROUPS = pl.Series([0, 1, 0], dtype=pl.UInt32)
ROWS = pl.DataFrame({"0": [3, 4, 8]})


def test_a_group_that_a_row_has_left_is_not_exact_whatever_enters_then() -> None:
    bits = Accumulating(Bits("size"))
    states = bits.accumulate(bits.init(3), GROUPS, ROWS)
    assert bits.emit(states).to_list() == [11, 4, None]
    assert bits.exact(states).all()
    left = bits.compensate(states, GROUPS[:1], ROWS[:1])
    left = bits.accumulate(left, GROUPS[:1], ROWS[:1])
    assert bits.exact(left).to_list() == [False, True, True]
    assert bits.exact(states).all()


def test_united_contents_are_exact_if_both_are() -> None:
    bits = Accumulating(Bits("size"))
    one = bits.accumulate(bits.init(2), GROUPS, ROWS)
    left = bits.compensate(one, GROUPS[:1], ROWS[:1])
    assert bits.emit(bits.merge(one, one)).to_list() == [11, 4]
    for merged in (bits.merge(one, left), bits.merge(left, one)):
        assert bits.exact(merged).to_list() == [False, True]


def test_a_stored_result_is_exact() -> None:
    bits = Accumulating(Bits("size"))
    assert bits.kept == ("bits",)
    recalled = bits.recall(pl.DataFrame({"bits": [5]}))
    assert (bits.emit(recalled)[0], bits.exact(recalled)[0]) == (5, True)


@pytest.mark.parametrize("kind", [Bits, SlowPeak])
def test_a_function_that_says_nothing_of_what_leaves_is_refused(kind: type[Bits]) -> None:
    net = Network("tape")
    trades = net.source("trades", fields=FIELDS, identity=["id"], event_time="at", keep="1d")
    silent = type("Silent", (kind,), {"compensates": True})
    trades.aggregate("sums", window=tumbling(10), n=silent("size"))
    with pytest.raises(NetworkError, match=r"Silent.*a method compensate.*or compensates = False"):
        compile_network(net)


@pytest.mark.parametrize("mode", ["upstream", "downstream", "resident"])
@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("window", [tumbling(10), sliding(10)], ids=["tumbling", "sliding"])
def test_what_can_not_be_compensated_is_replayed_and_counted_as_a_fallback(
    mode: str, emit: str, window: Any
) -> None:
    sizes = {"a": 1, "b": 2, "c": 4}
    tuples = {key: {"key": key, "at": 3, "amount": size} for key, size in sizes.items()}
    for wm in (0, 20):  # open, closed
        trial = Trial(make(window, mode=mode, emit=emit, by=(), written=True))
        trial.epoch(dict(tuples), wm)
        trial.epoch({"b": None}, wm)
        trial.epoch({}, 20)
        assert trial.told["bits"].to_list() == [5]
        assert trial.seen["replayed"] == 2
        assert trial.seen["fallbacks"] == (wm == 0 or mode != "upstream")
