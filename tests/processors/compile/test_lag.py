"""Lags and windows that count, as a user declares them: what they give, need, and are refused."""

import math
import statistics
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from errata import Network, NetworkError, hopping, sliding, tumbling
from errata.processors.boxes.ordered import Ordered
from errata.processors.compile.compiler import compile_network
from errata.processors.windows.time_windows import FOREVER_MS, WindowSpecError
from errata.testing import Driver

FIELDS = {"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "double"}
MINUTE, HOUR_MINUTES = 60_000, 60


def source(net: Network, **options: Any) -> Any:
    given = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d"} | options
    return net.source("prices", **given)


def told(minute: int, price: float, symbol: str = "IBM") -> dict[str, Any]:
    key = f"{symbol} {minute:03}"
    return {"key": key, "at": minute * MINUTE, "symbol": symbol, "price": price}


def revised(driver: Driver, arc: str) -> list[str]:
    """Return the keys of the tuples that were revised."""
    return sorted((r.get("after") or r["before"])["key"] for r in driver.revisions(arc))


# -------------------------------------------------------------------------------- volatility


def volatility() -> Network:
    net = Network("desk")
    ticks = source(net, partition_by=["symbol"]).lag("ticks", by=["symbol"], previous="price")
    returns = ticks.map("returns", r="ln(price / previous)")
    for name, window in (("hour", sliding("1h")), ("last20", sliding(rows=20))):
        returns.aggregate(name, by=["symbol"], window=window, vol="stddev_samp(r) * sqrt(98280)")
    return net


def plain_volatility(prices: dict[int, float]) -> dict[int, tuple[float | None, float | None]]:
    """Return by minute the volatility of an hour, and of twenty returns, by plain loops."""
    minutes = sorted(prices)
    returns = {now: math.log(prices[now] / prices[was]) for was, now in pairwise(minutes)}

    def of(chosen: list[int]) -> float | None:
        values = [returns[minute] for minute in chosen if minute in returns]
        return statistics.stdev(values) * math.sqrt(98_280) if len(values) > 1 else None

    return {
        now: (
            of([minute for minute in minutes if now - HOUR_MINUTES < minute <= now]),
            of([minute for minute in minutes if minute <= now][-20:]),
        )
        for now in minutes
    }


def alike(one: float | None, other: float | None) -> bool:
    return one is other is None or (one is not None and one == pytest.approx(other, rel=1e-9))


def test_a_corrected_price_revises_two_returns_and_every_volatility_that_holds_them() -> None:
    prices = {minute: 100 + math.sin(minute) for minute in range(0, 300, 5)}
    with Driver(volatility()) as driver:
        driver.send("prices", [{"op": "insert", "after": told(*each)} for each in prices.items()])
        driver.close_epoch()
        driver.end()
        first = {row["at"]: row["vol"] for row in driver.table("last20")}
        for arc in ("returns", "hour", "last20"):
            driver.revisions(arc)
        correction = {"op": "replace", "before": told(100, prices[100]), "after": told(100, 107.0)}
        driver.send("prices", correction)
        driver.close_epoch()
        prices[100] = 107.0
        wanted = plain_volatility(prices)
        assert revised(driver, "returns") == ["IBM 100", "IBM 105"]
        assert revised(driver, "last20") == [f"IBM {minute:03}" for minute in range(100, 205, 5)]
        ends = sorted((r["after"]["window_end"] - 1) // MINUTE for r in driver.revisions("hour"))
        assert ends == list(range(100, 165, 5))
        for row in driver.table("hour"):
            assert alike(row["vol"], wanted[(row["window_end"] - 1) // MINUTE][0])
        for row in driver.table("last20"):
            assert alike(row["vol"], wanted[row["at"] // MINUTE][1])
            changed = 100 <= row["at"] // MINUTE <= 200
            assert (row["vol"] != first[row["at"]]) == changed


# -------------------------------------------------------------------------------- the order


def test_tuples_that_happen_together_stand_in_the_order_of_their_identity() -> None:
    net = Network("desk")
    source(net).lag("ticks", by=[], offset=2, fields={"name": "key"})
    with Driver(net) as driver:
        for symbol in ("c", "a", "d", "b"):
            driver.send("prices", {"op": "insert", "after": told(1, 1.0, symbol)})
            driver.close_epoch()
        found = {row["symbol"]: row["name"] for row in driver.table("ticks")}
    assert found == {"a": None, "b": None, "c": "a 001", "d": "b 001"}


@pytest.mark.parametrize("scope", [None, "apart"])
def test_a_tuple_that_moves_to_another_group_leaves_its_successor_behind(scope: str | None) -> None:
    net = Network("desk")
    fields = {"was": "price"}
    source(net).lag("ticks", by=["symbol"], fields=fields, scope=scope, partitions=3)
    with Driver(net) as driver:
        lines = [told(1, 1.0), told(2, 2.0), told(3, 3.0), told(1, 9.0, "HP")]
        driver.send("prices", [{"op": "insert", "after": line} for line in lines])
        driver.close_epoch()
        driver.revisions("ticks")
        driver.send("prices", {"op": "replace", "after": told(2, 2.0) | {"symbol": "HP"}})
        driver.close_epoch()
        found = {row["key"]: row["was"] for row in driver.table("ticks")}
        assert found == {"IBM 001": None, "IBM 003": 1.0, "HP 001": None, "IBM 002": 9.0}
        assert set(revised(driver, "ticks")) == {"IBM 002", "IBM 003"}


def test_a_window_of_time_below_one_that_fills_sees_all_of_what_it_will_hold() -> None:
    """Bars of two are at the time of their last tuple, which windows that are replayed must know.

    0    1    2  |  10   40       minutes; windows of ten
    |----|                        the first bar happens at 1
              |------|            the second one at 10, not at 2
    """
    net = Network("desk")
    bars = source(net).aggregate(
        "bars", window=tumbling(rows=2), emit="on_update", total="sum(price)"
    )
    bars.aggregate("held", window=tumbling("10m"), mode="upstream", n="count(*)", s="sum(total)")
    with Driver(net) as driver:
        for minute in (0, 1, 2, 10, 40):
            driver.send("prices", {"op": "insert", "after": told(minute, 1.0)})
        driver.close_epoch()
        driver.send("prices", {"op": "replace", "after": told(0, 5.0)})
        driver.close_epoch()
        found = [
            (row["window_start"] // MINUTE, row["n"], row["s"]) for row in driver.table("held")
        ]
        assert sorted(found) == [(0, 1, 6.0), (10, 1, 2.0)]


def test_a_window_below_a_left_join_knows_of_pairs_that_came_later() -> None:
    net = Network("desk")
    one = source(net)
    other = net.source("news", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    met = net.join("met", {"p": one, "n": other}, on=["symbol"], how="left", news="n.key")
    met.aggregate("held", window=tumbling("10m"), mode="upstream", n="count(*)")
    with Driver(net) as driver:
        driver.send("prices", [{"op": "insert", "after": told(1, 1.0, s)} for s in ("a", "b")])
        driver.send("news", {"op": "insert", "after": told(15, 0.0, "a")})
        for name in ("prices", "news"):
            driver.send(name, {"op": "insert", "after": told(90, 0.0, name)})
        driver.close_epoch()
        driver.send("prices", {"op": "insert", "after": told(2, 1.0, "c")})
        driver.close_epoch()
        found = {row["window_start"] // MINUTE: row["n"] for row in driver.table("held")}
        assert found == {0: 2, 10: 1}


# -------------------------------------------------------------------------------- the plan


def test_groups_across_partitions_are_brought_together_and_need_all_of_the_history() -> None:
    net = Network("desk")
    prices = source(net, partition_by=["key"])
    prices.lag("ticks", by=["symbol"], previous="price")
    prices.aggregate("bars", by=["symbol"], window=tumbling(rows=3), n="count(*)")
    plan = compile_network(net)
    assert {"ticks.exchange", "bars.exchange"} <= plan.topology.arcs.keys()
    assert (
        plan.topology.arcs["ticks"].partition_by
        == plan.topology.arcs["bars"].partition_by
        == ("symbol",)
    )
    assert plan.radius_ms("prices") == FOREVER_MS
    assert {choice.mode for choice in plan.choices.values()} == {"adaptive"}


def test_a_source_is_partitioned_by_what_a_lag_groups_by() -> None:
    net = Network("desk")
    source(net).lag("ticks", by=["symbol"], previous="price")
    assert compile_network(net).topology.arcs["prices"].partition_by == ("symbol",)


def test_results_of_sliding_windows_have_the_identity_and_time_of_their_last_tuple() -> None:
    net = Network("desk")
    prices = source(net)
    prices.aggregate("last", by=["symbol"], window=sliding(rows=3), n="count(*)")
    prices.aggregate("bars", by=["symbol"], window=hopping(rows=4, every=2), n="count(*)")
    plan = compile_network(net)
    last, bars = plan.topology.arcs["last"], plan.topology.arcs["bars"]
    assert (last.identity, last.event_time) == (("symbol", "key"), "at")
    assert last.visible == ["symbol", "key", "at", "n"]
    assert (bars.identity, bars.event_time) == (("symbol", "window_start"), "__at")
    assert bars.visible == ["symbol", "window_start", "window_end", "n"]


@pytest.mark.parametrize("arc", ["ticks", "last", "bars"])
def test_recomputed_part_by_part_each_is_what_its_box_tells(arc: str) -> None:
    """As a job of `errata reconcile` does: whole groups, and the columns that are looked at."""
    net = Network("desk")
    prices = source(net)
    prices.lag("ticks", by=["symbol"], previous="price")
    prices.aggregate(
        "last", by=["symbol"], window=sliding(rows=3), emit="on_update", n="sum(price)"
    )
    prices.aggregate("bars", by=["symbol"], window=tumbling(rows=3), emit="on_update", n="count(*)")
    with Driver(net) as driver:
        lines = [told(minute, float(minute), "abc"[minute % 3]) for minute in range(20)]
        driver.send("prices", [{"op": "insert", "after": line} for line in lines])
        driver.close_epoch()
        box, tuples = driver.plan.boxes[arc], pl.DataFrame(driver.table("prices"))
        assert isinstance(box, Ordered)
        (above,) = box.history_inputs
        assert above.by == ("symbol",)
        parts = tuples.select(above.columns).partition_by(above.by)
        made = pl.concat(box.recompute(part) for part in parts).select(box.arc.visible)
        assert made.sort(box.arc.identity).rows(named=True) == driver.table(arc)


# -------------------------------------------------------------------------------- what is refused


def refused(declare: Any, **options: Any) -> str:
    net = Network("desk")
    declare(source(net, **options))
    with pytest.raises(NetworkError) as caught:
        compile_network(net)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"offset": 0}, "offset= as a whole number from 1"),
        ({"offset": -1}, "offset= as a whole number from 1"),
        ({"offset": 1.5}, "offset= as a whole number from 1"),
        ({"by": ["venue"]}, "'venue'"),
        ({"fields": {"price": "price"}}, "results under other names than its input's fields"),
        ({"fields": {"was": "size"}}, "size"),
        ({"fields": {"was": "sum(price)"}}, "an expression for 'was'"),
        ({"partitions": 0}, "partitions above 0"),
    ],
)
def test_a_lag_that_cannot_be_is_refused(options: dict[str, Any], found: str) -> None:
    given = {"by": ["symbol"], "fields": {"was": "price"}} | options
    assert found in refused(lambda prices: prices.lag("ticks", **given))


def test_a_lag_over_a_source_without_history_is_refused() -> None:
    told = refused(lambda s: s.lag("ticks", by=["symbol"], was="price"), keep=None)
    assert "a connection point upstream to read the tuples of a group from, in order" in told
    assert "give source 'prices' keep=" in told


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"mode": "upstream"}, "no radius bounds a revision"),
        ({"mode": "downstream"}, "no radius bounds a revision"),
        ({"place": "spark", "mode": "resident"}, "Spark keeps its input"),
        ({"window": sliding(rows=3), "fields": {"key": "count(*)"}}, "'key'"),
        ({"fields": {"window_end": "count(*)"}}, "'window_end'"),
        ({"window": hopping(rows=2002, every=2)}, "sliding(rows=2002)"),
    ],
)
def test_windows_that_count_are_refused_what_they_cannot_do(
    options: dict[str, Any], found: str
) -> None:
    given = {"window": tumbling(rows=3), "fields": {"n": "count(*)"}} | options
    assert found in refused(lambda prices: prices.aggregate("bars", by=["symbol"], **given))


def test_another_mode_for_all_aggregates_leaves_windows_that_count_as_they_are() -> None:
    net = Network("desk")
    source(net).aggregate("bars", by=["symbol"], window=tumbling(rows=3), n="count(*)")
    assert compile_network(net, mode="upstream").choices["bars"].mode == "adaptive"
    assert compile_network(net, mode="resident").choices["bars"].mode == "resident"


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumbling(rows=0),
        lambda: sliding(rows=True),
        lambda: hopping(rows=3, every=4),
        lambda: hopping(rows=3, every="1m"),
        lambda: tumbling("1m", rows=3),
        lambda: tumbling(rows=3, tz="Europe/Berlin"),
        lambda: sliding(),
        lambda: tumbling(),
        lambda: sliding(rows=10**9),
    ],
)
def test_windows_of_no_number_of_tuples_or_of_a_size_besides_are_refused(make: Any) -> None:
    with pytest.raises(WindowSpecError):
        make()
