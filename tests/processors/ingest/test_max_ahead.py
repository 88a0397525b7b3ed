"""An event time far ahead of the clock is a dead letter, and moves no watermark."""

import json
from pathlib import Path

import pytest

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.processors.plan.plan import load
from errata.processors.wire.dead_letter import AHEAD
from errata.testing import Driver

HOUR, NOW = 3_600_000, 1_790_000_000_000
FAR = 4_070_908_800_000  # 2099


def network(**more: object) -> Network:
    net = Network("ahead")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source(
        "trades", fields=fields, identity=["key"], event_time="at", keep="1d", **more
    )
    trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(price)")
    return net


class Clocked(Driver):
    """A driver whose records have timestamps and whose ingest has a clock, as on Kafka."""

    written_ms, now_ms = NOW, NOW

    def _build(self) -> None:
        self.cluster.clock_ms = lambda: self.written_ms
        super()._build()
        for ingest in self.ingests.values():
            ingest.clock_ms = lambda: self.now_ms
            ingest.source = self.plan.topology.sources[ingest.arc.name]

    def trade(self, key: str, at: int) -> None:
        row = {"key": key, "at": at, "price": 1}
        self.send("trades", {"op": "insert", "after": row})

    def refused(self) -> list[tuple[str, str]]:
        return [
            (json.loads(letter.value)["after"]["key"], letter.reason)
            for letter in self.dead_letters()
        ]


def test_a_trade_of_2099_is_a_dead_letter_and_the_next_ones_count() -> None:
    with Clocked(network()) as driver:
        driver.trade("a", NOW - HOUR)
        driver.trade("far", FAR)
        driver.close_epoch()
        driver.trade("b", NOW - HOUR + 1)
        driver.end()
        assert driver.refused() == [("far", AHEAD)]
        (letter,) = driver.dead_letters()
        assert letter.detail == (
            "event time 2099-01-01T00:00:00.000 is after 2026-09-21T15:13:20.000, the latest at "
            "the time of writing (max_ahead)"
        )
        assert driver.shared.view.of("ingest.trades.0").watermark == NOW - HOUR + 1
        assert [row["total"] for row in driver.table("sums")] == [2]


@pytest.mark.parametrize(
    ("written", "now", "at", "counts"),
    [
        (NOW, NOW, NOW + HOUR, True),
        (NOW, NOW, NOW + HOUR + 1, False),
        (NOW, NOW + 10 * HOUR, NOW + HOUR + 1, False),  # read again later: judged alike
        (FAR, NOW, FAR, False),  # a producer whose clock is wrong wrote both
        (-1, NOW, NOW + HOUR, True),  # no timestamp
        (-1, NOW, NOW + HOUR + 1, False),
        (NOW - 1000 * HOUR, NOW, NOW - 999 * HOUR, True),
        (NOW - 1000 * HOUR, NOW, NOW, False),
    ],
)
def test_the_bound_is_the_time_of_writing_but_never_after_the_clock(written, now, at, counts):
    with Clocked(network()) as driver:
        driver.written_ms, driver.now_ms = written, now
        driver.trade("a", at)
        driver.close_epoch()
        assert driver.refused() == ([] if counts else [("a", AHEAD)])


def test_a_replace_that_changes_the_identity_is_refused_whole() -> None:
    with Clocked(network()) as driver:
        driver.trade("a", NOW)
        before = {"key": "a", "at": NOW, "price": 1}
        after = {"key": "b", "at": FAR, "price": 1}
        driver.send("trades", {"op": "replace", "before": before, "after": after})
        driver.end()
        assert [row["key"] for row in driver.table("trades")] == ["a"]
        assert len(driver.dead_letters()) == 1


def test_a_rekeyed_source_is_judged_before_its_records_are_passed_on() -> None:
    with Clocked(network(rekey=True)) as driver:
        driver.trade("a", NOW)
        driver.trade("far", FAR)
        driver.end()
        assert driver.refused() == [("far", AHEAD)]
        assert [row["key"] for row in driver.table("trades")] == ["a"]


def test_a_driver_has_no_clock_to_judge_by(tmp_path: Path) -> None:
    with Driver(network()) as driver:
        row = {"key": "far", "at": FAR, "price": 1}
        driver.send("trades", {"op": "insert", "after": row})
        driver.end()
        assert driver.dead_letters() == []


def test_a_plan_names_another_bound_than_the_default_one() -> None:
    default, none, day = (
        compile_network(network(**more)).placed({"trades": 1})
        for more in ({}, {"max_ahead": None}, {"max_ahead": "1d"})
    )
    assert "max_ahead_ms" not in default.describe()["sources"]["trades"]
    for plan, bound in ((default, HOUR), (none, None), (day, 24 * HOUR)):
        loaded = load(plan.describe(), plan.deployment)
        assert loaded.topology.sources["trades"].max_ahead_ms == bound


def test_a_bound_that_is_no_duration_is_refused() -> None:
    with pytest.raises(NetworkError, match="max_ahead"):
        compile_network(network(max_ahead="soon"))
