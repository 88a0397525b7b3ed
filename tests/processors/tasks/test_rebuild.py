"""A task whose history is gone catches up in one coalesced epoch."""

import re

import pytest

from errata import Network, Stream, python, tumbling
from errata.processors.tasks.reading_again import ReadingAgain
from errata.processors.tasks.scope_run import BoxError
from errata.processors.tasks.scope_task import ScopeTask
from errata.testing import Driver
from errata.topics.cluster import FencedError, TopicPartition

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


def test_a_refused_replay_is_made_good_by_recomputing_at_the_frontier(monkeypatch):
    progress, note = [], ReadingAgain.note
    monkeypatch.setattr(
        ReadingAgain, "note", lambda self, *of: note(self, *of) or progress.append(str(self))
    )
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
        assert progress[-1].startswith("is rebuilt from its inputs: ")
        driver.end()
        assert [row["total"] for row in driver.table("sums")] == [21, 1, 2]


def test_results_whose_inputs_retention_has_taken_outlive_a_rebuild():
    with Driver(network("10y", kept="30m"), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("b", 2, 7), trade("c", 35, 1)])
        driver.close_epoch()
        driver.send("trades", [trade("d", 61, 3), trade("e", 62, 4)])
        driver.close_epoch()
        driver.revisions("sums")
        arc = TopicPartition(driver.plan.deployment.topic("trades"), 0)
        driver.cluster.delete_before(arc, 2)  # a and b
        driver.shared.codecs.clear()  # and what was read of them
        driver.sweepers["trades"].store.raise_floor(10**9)
        driver.send("trades", [trade("f", 36, 2), trade("g", 75, 6)])
        driver.close_epoch()
        told = driver.revisions("sums")
        assert [(r["op"], r["after"]["total"]) for r in told] == [("replace", 3), ("insert", 7)]
        assert driver.counts()["trades.0"]["rebuilt"] == 1
        assert [row["total"] for row in driver.table("sums")] == [12, 3, 7]


def unlucky(price: int) -> int:
    return 1 // (price - 13)


def odd() -> Network:
    """A network that a function raises in, beside an aggregate that may have to be rebuilt."""
    net = network()
    trades = Stream(net, "trades")
    trades.map("scaled", share=python(unlucky, "long", "price"), scope="trades", keep="1d")
    return net


def behind(driver: Driver) -> None:
    """Let 13s come in, then more of them while nothing from before is answered."""
    driver.send("trades", [trade("a", 1, 13), trade("b", 2, 13), trade("c", 35, 13)])
    driver.close_epoch()
    driver.sweepers["trades"].store.raise_floor(10**9)
    changed = {"op": "replace", "after": {"key": "b", "at": 3 * MINUTE, "price": 13}}
    driver.send("trades", [trade("d", 4, 13), trade("e", 5, 12), changed])
    driver.close_epoch()


def test_a_rebuild_tells_what_it_refuses_of_what_came_since_and_nothing_twice():
    with Driver(odd(), mode="upstream") as driver:
        behind(driver)
        assert driver.counts()["trades.0"]["rebuilt"] == 1
        told = [
            (letter.epoch, re.findall(r"'key': '(\w)'", letter.detail)[0])
            for letter in driver.dead_letters()
        ]
        assert sorted(told) == [(1, "a"), (1, "b"), (1, "c"), (2, "b"), (2, "d")]
        assert driver.counts()["trades.0"]["scaled.refused"] == 5
        assert driver.counts()["trades.0"]["dead_letters"] == 5


def test_a_rebuild_stops_at_what_it_refuses_where_that_is_asked_for():
    with Driver(odd(), mode="upstream", on_error="stop") as driver:
        driver.send("trades", [trade("a", 1, 1), trade("c", 35, 1)])
        driver.close_epoch()
        driver.sweepers["trades"].store.raise_floor(10**9)
        driver.send("trades", trade("d", 4, 13))
        with pytest.raises(BoxError, match=r"box 'scaled', epoch 2: .*'key': 'd'"):
            driver.close_epoch()


def test_a_life_that_asks_for_what_a_newer_one_has_passed_ends():
    """Its arc keeps no history, so that it could not be rebuilt either, which is not the reason."""
    with Driver(network(keep=None), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("c", 15, 1)])
        driver.close_epoch()
        old = next(task for task in driver.tasks if isinstance(task, ScopeTask))
        newer = ScopeTask(driver.shared, old.scope, partition=0, replays=old.replays)
        life = newer.steps()
        while not newer.started:
            next(life)
        driver.sweepers["trades"].store.raise_floor(10**9)
        driver.send("trades", trade("d", 3, 9))
        with pytest.raises(FencedError, match="a newer attempt has taken over"):
            driver.close_epoch()


class Silent:
    """Sweepers that never answer."""

    def fetch(self, queries, *, task, attempt, epoch):
        while True:
            yield False


def test_a_life_that_waits_for_what_only_a_newer_one_is_answered_ends():
    with Driver(network(keep="1d"), mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("c", 15, 1)])
        driver.close_epoch()
        old = next(task for task in driver.tasks if isinstance(task, ScopeTask))
        newer = ScopeTask(driver.shared, old.scope, partition=0, replays=old.replays)
        life = newer.steps()
        while not newer.started:
            next(life)
        old.replays = Silent()
        driver.send("trades", trade("d", 3, 9))
        with pytest.raises(FencedError, match="requests are not answered any more"):
            driver.close_epoch()
