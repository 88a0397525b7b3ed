"""Distinct: each combination of values once, for as long as some tuple has it."""

from typing import Any

import pytest

from errata import Network, NetworkError, Stream
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

FIELDS = {"id": "string", "at": "timestamp-millis", "symbol": "string", "venue": "string?"}


def trades(net: Network, **options: Any) -> Stream:
    """Declare the source."""
    return net.source(
        "trades", identity=["id"], event_time="at", keep="1d", fields=FIELDS, **options
    )


def trade(name: str, at: int, symbol: str = "IBM", venue: str | None = None) -> dict[str, Any]:
    """Return a tuple of the source."""
    return {"id": name, "at": at, "symbol": symbol, "venue": venue}


def pair(at: int, symbol: str = "IBM", venue: str | None = None) -> dict[str, Any]:
    """Return a tuple of the distinct box."""
    return {"symbol": symbol, "venue": venue, "at": at}


@pytest.fixture(params=[None, "resident"])
def driver(request: pytest.FixtureRequest) -> Any:
    net = Network("shares")
    trades(net).distinct("pairs", by=["symbol", "venue"])
    with Driver(net, mode=request.param) as found:
        yield found


def epoch(driver: Driver, *lines: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Send an epoch; return what it revises as pairs of before and after."""
    for line in lines:
        driver.send("trades", line)
    driver.close_epoch()
    return [(made.get("before"), made.get("after")) for made in driver.revisions("pairs")]


def insert(*args: Any) -> dict[str, Any]:
    return {"op": "insert", "after": trade(*args)}


def delete(*args: Any) -> dict[str, Any]:
    return {"op": "delete", "before": trade(*args)}


def test_only_the_first_copy_inserts_and_only_the_last_ones_deletion_deletes(driver):
    assert epoch(driver, insert("a", 1000), insert("b", 2000)) == [(None, pair(1000))]
    assert epoch(driver, insert("c", 3000)) == []
    assert epoch(driver, delete("c", 3000), delete("b", 2000)) == []
    assert epoch(driver, delete("a", 1000)) == [(pair(1000), None)]
    assert driver.table("pairs") == []


def test_it_happened_when_the_earliest_copy_did(driver):
    assert epoch(driver, insert("b", 2000)) == [(None, pair(2000))]
    assert epoch(driver, insert("a", 1000)) == [(pair(2000), pair(1000))]
    assert epoch(driver, delete("a", 1000)) == [(pair(1000), pair(2000))]


def test_a_copy_that_takes_other_values_leaves_one_combination_for_another(driver):
    epoch(driver, insert("a", 1000), insert("b", 2000))
    replaced = {"op": "replace", "before": trade("a", 1000), "after": trade("a", 1000, "IBM", "L")}
    revised = epoch(driver, replaced)
    assert sorted(revised, key=str) == [(None, pair(1000, "IBM", "L")), (pair(1000), pair(2000))]


def test_equal_values_are_brought_together_from_all_partitions():
    net = Network("shares")
    trades(net, partition_by=["id"]).distinct("pairs", by=["symbol"], partitions=3)
    plan = compile_network(net)
    assert plan.topology.arcs["pairs"].partition_by == ("symbol",)
    assert plan.boxes["pairs"].inputs == ("pairs.exchange",)


def test_a_source_is_partitioned_by_what_a_distinct_box_needs_together():
    net = Network("shares")
    trades(net).distinct("pairs", by=["venue"])
    assert compile_network(net).topology.arcs["trades"].partition_by == ("venue",)


@pytest.mark.parametrize(
    ("by", "told"),
    [([], "at least one field in by="), (["price"], "unknown 'price'"), (["id", "id"], "twice")],
)
def test_what_can_not_be_told_apart_by_is_refused(by, told):
    net = Network("shares")
    trades(net).distinct("pairs", by=by)
    with pytest.raises(NetworkError, match=told):
        compile_network(net)


def test_a_history_that_is_not_kept_is_asked_for_by_name():
    net = Network("shares")
    source = net.source("trades", identity=["id"], event_time="at", fields=FIELDS)
    source.distinct("pairs", by=["symbol"])
    with pytest.raises(NetworkError, match=r"pairs .*needs a connection point upstream"):
        compile_network(net)


def test_an_aggregate_above_does_not_fetch_its_results_from_behind_it():
    net = Network("shares")
    counted = {"by": ["symbol"], "window": None, "n": "count(*)"}
    sums = trades(net).aggregate("sums", mode="downstream", **counted)
    sums.distinct("once", by=["symbol"], keep="1d")
    with pytest.raises(NetworkError, match="distinct 'once' below it does not keep"):
        compile_network(net)
