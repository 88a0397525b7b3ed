"""A task whose history is gone catches up in one coalesced epoch."""

import pytest

from errata import Network, tumbling
from errata.testing import Driver
from processors.scope_task import ScopeTask
from topics.cluster import FencedError, TopicPartition

MINUTE = 60_000


def trade(key: str, minute: int, price: int) -> dict[str, object]:
    return {"op": "insert", "after": {"key": key, "at": minute * MINUTE, "price": price}}


def network(keep: str | None = "1d", *, kept: str = "1d") -> Network:
    net = Network("rebuilt")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep=kept,
    )
    trades.aggregate(
        "sums", by=[], window=tumbling("10m"), total="sum(price)", top="max(price)", keep=keep
    )
    return net


def test_a_refused_replay_is_made_good_by_recomputing_at_the_frontier():
    with Driver(network(), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("b", 2, 7), trade("c", 15, 1)])
        driver.close_epoch()
        driver.revisions("sums")
        driver.sweepers["trades"].store.raise_floor(10**9)  # nothing before is answered any more
        driver.send("trades", [trade("d", 3, 9), trade("e", 26, 2)])
        driver.close_epoch()
        told = driver.revisions("sums")
        assert [(r["op"], r["after"]["total"], r["after"]["top"]) for r in told] == [
            ("replace", 21, 9),
            ("insert", 1, 1),
        ]
        assert told[0]["before"]["total"] == 12
        assert driver.counts()["trades.0"]["rebuilt"] == 1
        driver.end()
        assert [row["total"] for row in driver.table("sums")] == [21, 1, 2]


def test_results_whose_inputs_retention_has_taken_outlive_a_rebuild():
    with Driver(network("10y", kept="30m"), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("b", 2, 7), trade("c", 35, 1)])
        driver.close_epoch()
        driver.send("trades", [trade("d", 61, 3), trade("e", 62, 4)])
        driver.close_epoch()
        driver.revisions("sums")
        arc = TopicPartition(driver.plan.topic("trades"), 0)
        driver.cluster.trim(arc, 2)  # a and b
        driver.shared.codecs.clear()  # and what was read of them
        driver.sweepers["trades"].store.raise_floor(10**9)
        driver.send("trades", [trade("f", 36, 2), trade("g", 75, 6)])
        driver.close_epoch()
        told = driver.revisions("sums")
        assert [(r["op"], r["after"]["total"]) for r in told] == [("replace", 3), ("insert", 7)]
        assert driver.counts()["trades.0"]["rebuilt"] == 1
        assert [row["total"] for row in driver.table("sums")] == [12, 3, 7]


def test_a_life_that_asks_for_what_a_newer_one_has_passed_ends():
    """Its arc keeps no history, so that it could not be rebuilt either, which is not the reason."""
    with Driver(network(keep=None), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("c", 15, 1)])
        driver.close_epoch()
        old = next(task for task in driver.tasks if isinstance(task, ScopeTask))
        newer = ScopeTask(driver.shared, old.scope, partition=0, desk=old.desk)
        life = newer.life()
        while not newer.started:
            next(life)
        driver.sweepers["trades"].store.raise_floor(10**9)
        driver.send("trades", trade("d", 3, 9))
        with pytest.raises(FencedError, match="a newer life of it has taken over"):
            driver.close_epoch()
