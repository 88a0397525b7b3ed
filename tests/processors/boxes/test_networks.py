"""Aggregates of every kind of window in networks that run: tables, modes, faults."""

import random
from typing import Any

import pytest

from errata import Network, NetworkError, Stream, hopping, sliding, tumbling
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

RESULTS = {"n": "count(*)", "total": "sum(price)", "top": "max(price)"}
MODES = ("upstream", "downstream", "resident", "adaptive")
WAYS = (
    ("upstream", "10d"),
    ("upstream", None),  # replays of the second aggregate go through the first
    ("downstream", "10d"),
    ("resident", None),
)
DAY = 86_400_000


def source(net: Network, keep: int | str = "10d") -> Stream:
    return net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "desk": "string", "price": "long"},
        identity=["key"],
        event_time="at",
        lateness=2,
        keep=keep,
    )


def network(
    window: Any,
    *,
    emit: str = "on_close",
    by: tuple[str, ...] = ("desk",),
    keep: str | None = "10d",
) -> Network:
    net = Network("windows")
    sums = source(net).aggregate("sums", by=by, window=window, emit=emit, fields=RESULTS, keep=keep)
    if window is not None:
        sums.aggregate(
            "second", by=[], window=tumbling(30), all="sum(total)", best="max(top)", keep="10d"
        )
    else:
        sums.aggregate("second", window=None, all="sum(total)", best="max(top)", keep="10d")
    return net


def lines(seed: int) -> list[list[dict[str, Any]]]:
    """Return random epochs of inserts, replaces and deletes, later and later, some of them late."""
    choose, held, found = random.Random(seed), dict[str, dict[str, Any]](), []
    for epoch in range(12):
        lines = []
        for key in choose.sample("abcdefgh", 3):
            before, after = held.pop(key, None), None
            if before is None or choose.random() < 0.7:
                at = choose.randrange(max(0, epoch * 6 - 40), epoch * 6 + 8)
                desk, price = choose.choice("xy"), choose.randrange(100)
                after = held[key] = {"key": key, "at": at, "desk": desk, "price": price}
            op = "insert" if before is None else "replace" if after else "delete"
            lines.append({"op": op, "before": before, "after": after})
        found.append(lines)
    return found


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize(
    "window",
    [hopping(12, every=8), tumbling(10, origin=3), sliding(15), None],
    ids=["hopping", "tumbling", "sliding", "whole"],
)
def test_modes_agree_through_tasks_sweepers_and_a_second_aggregate(window: Any, emit: str) -> None:
    by = ("desk",) if emit == "on_close" else ()
    told, tables = [], []
    for mode, keep in WAYS:
        with Driver(network(window, emit=emit, by=by, keep=keep), mode=mode) as driver:
            for epoch in lines(len(by)):
                driver.send("trades", epoch)
                driver.close_epoch()
            driver.end()
            told.append([sorted(driver.revisions(arc), key=repr) for arc in ("sums", "second")])
            tables.append([driver.table(arc) for arc in ("trades", "sums", "second")])
    assert all(revisions == told[0] for revisions in told)
    assert any(r["op"] == "replace" for r in told[0][0]) == (
        window is not None or emit == "on_update"
    )
    trades, sums, second = tables[0]
    assert sum(r["price"] for r in trades) > 0
    if window is None:
        assert sum(r["total"] for r in sums) == sum(r["price"] for r in trades)
        assert second[0]["all"] == sum(r["total"] for r in sums)
        assert set(sums[0]) == {*by, "n", "total", "top"}
    else:
        assert sum(r["all"] for r in second) == sum(r["total"] for r in sums)


def test_days_on_the_clocks_of_a_zone_are_revised_as_others_are() -> None:
    """New York, 9 March 2025: 23 hours, from 5:00 to 4:00 UTC."""
    start, hour = 1_741_496_400_000, 3_600_000
    for mode in MODES:
        with Driver(network(tumbling("1d", tz="America/New_York")), mode=mode) as driver:
            driver.send("trades", [trade("a", start), trade("b", start + 23 * hour - 1)])
            driver.send("trades", trade("c", start + 23 * hour + 2))
            driver.close_epoch()
            assert [r["n"] for r in driver.table("sums")] == [2]
            driver.send("trades", trade("d", start + 22 * hour))
            driver.close_epoch()
            driver.end()
            days = [(r["window_end"] - r["window_start"], r["n"]) for r in driver.table("sums")]
            assert days == [(23 * hour, 3), (24 * hour, 1)]


def trade(key: str, at: int, price: int = 1) -> dict[str, Any]:
    return {"op": "insert", "after": {"key": key, "at": at, "desk": "x", "price": price}}


# -------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"emit": "always"}, "emit='on_close' or emit='on_update'; found 'always'"),
        ({"window": "1d"}, "a window, or None .*; found '1d'; write hopping"),
        ({"window": hopping("1d", every="1s")}, "use sliding"),
        ({"mode": "lazy"}, "a mode of upstream, downstream, resident, adaptive; found 'lazy'"),
        ({"order_by": ["size"]}, "order by"),
        ({"place": "moon"}, "place='spark' or place='process'"),
        ({"by": ["desk", "desk"]}, "each field of by once"),
        ({"window": tumbling("1d", tz="Europe/Berlin"), "keep": "1h"}, None),
    ],
)
def test_options_that_cannot_work_are_told_with_a_remedy(
    options: dict[str, Any], told: str | None
) -> None:
    net = Network("faults")
    source(net).aggregate("sums", **{"window": tumbling(10), "n": "count(*)", **options})
    if told is None:
        compile_network(net)
    else:
        with pytest.raises(NetworkError, match=told):
            compile_network(net)


def test_windows_over_results_of_whole_histories_are_refused() -> None:
    net = Network("faults")
    whole = source(net).aggregate("whole", by=["desk"], window=None, n="count(*)")
    whole.aggregate("sums", window=sliding(10), n="count(*)")
    with pytest.raises(NetworkError, match=r"sums.*'whole'.* event time is infinite"):
        compile_network(net)


def test_a_zone_adds_its_largest_jump_to_the_radius_and_a_whole_history_needs_no_keep() -> None:
    net = Network("radius")
    trades = source(net, keep=DAY)
    trades.aggregate("whole", window=None, n="count(*)")
    compile_network(net)
    trades.aggregate("days", window=tumbling("1d", tz="Australia/Lord_Howe"), n="count(*)")
    with pytest.raises(NetworkError, match=f"keep of at least {DAY + 5_400_000} ms"):
        compile_network(net)
