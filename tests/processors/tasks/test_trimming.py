"""What is deleted from the topics of connection points, and when."""

import logging
from dataclasses import replace
from functools import partial

import pytest

from errata import Network, tumbling
from errata.processors.tasks.compaction import CompactionGuard
from errata.processors.tasks.expiry import newest_event_ms
from errata.processors.tasks.trimming import TRIMMED_MS, Trimmer
from errata.processors.wire.report import FOREVER, PENDING
from errata.testing import Driver
from errata.topics.cluster import ClusterError, MovingLeaderError, TopicPartition

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
"""The clock when the first tuple comes."""


class Trimmed(Driver):
    """A network whose tuples come by the hour, with a clock of its own for what is deleted."""

    def __init__(self, *, max_ahead: str | None = "1h") -> None:
        net = Network("trimmed")
        trades = net.source(
            "trades",
            fields={"key": "string", "at": "timestamp-millis", "price": "long"},
            identity=["key"],
            event_time="at",
            keep="3h",
            max_ahead=max_ahead,
        )
        trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(price)", keep="3h")
        super().__init__(net, mode="upstream")
        self.shared.compaction_lag_ms = HOUR
        self.now_ms, self.hour = NOW, 0
        self.cluster.clock_ms = lambda: self.now_ms
        for sweeper in self.sweepers.values():
            sweeper.clock_ms = self.cluster.clock_ms

    def feed(self, count: int = 1, *, op: str = "insert", hour: int | None = None) -> None:
        """Send a tuple for each of the next hours, or a revision of the one of some hour."""
        for _ in range(count):
            at = self.hour if hour is None else hour
            after = {
                "key": f"k{at}",
                "at": NOW - DAY + at * HOUR,
                "price": 1 if hour is None else 9,
            }
            self.send("trades", {"op": op, "after": after})
            self.close_epoch()
            self.hour += hour is None

    def trim(self, days: float = 1) -> None:
        """Let some days pass, twice: an end is noted, and then marked; sweepers seal."""
        for _ in range(2):
            self.now_ms += int(days * DAY) + TRIMMED_MS
            for sweeper in self.sweepers.values():
                while sweeper.follow():
                    pass
            for task in self.tasks:
                task.trimmer.trim(now_ms=self.now_ms)

    def place(self, arc: str) -> TopicPartition:
        return TopicPartition(self.plan.deployment.topic(arc), 0)

    def held(self, arc: str) -> list[int]:
        """Return the hours of the tuples that a topic holds."""
        codec, time = self.shared.codec(arc), self.plan.topology.arcs[arc].event_time
        records = self.cluster.log(self.place(arc)).read(0, 2**40)[0]
        times_ms = codec.decode(records)[f"after.{time}"].cast(int)
        return [(ms - NOW + DAY) // HOUR for ms in times_ms]


@pytest.fixture
def driver():
    with Trimmed() as driver:
        yield driver


def test_topics_stay_small_over_many_times_keep_and_results_stay_right(driver):
    sizes, results = [], []
    for _ in range(50):
        driver.feed(8)
        driver.trim()
        results += driver.revisions("sums")
        sizes.append(len(driver.held("trades")) + len(driver.held("sums")))
    assert max(sizes[25:]) <= 1.2 * max(sizes[:25])
    assert driver.held("trades")[0] >= driver.hour - 24  # it was 16 hours when it was marked
    driver.sweepers["trades"]._start_over("for this test")
    driver.feed(op="replace", hour=driver.hour - 3)
    driver.end()
    results += driver.revisions("sums")
    assert [r["after"]["total"] for r in results if r["op"] == "replace"] == [9]
    assert len([r for r in results if r["op"] == "insert"]) == driver.hour


def test_a_tuple_within_reach_stays_however_long_ago_it_was_written(driver):
    driver.feed(5)
    driver.trim(days=100)
    driver.trim(days=100)
    assert driver.held("trades") == list(range(5))


def test_old_tuples_that_were_written_just_now_stay_for_the_compaction_lag(driver):
    driver.shared.compaction_lag_ms = 9 * DAY
    driver.feed(20)
    driver.trim()
    driver.feed(20)
    driver.trim()
    assert driver.held("trades")[0] == 0
    driver.trim(days=9)
    assert driver.held("trades")[0] == 20


def test_records_stay_until_all_readers_have_passed_them(driver, monkeypatch):
    driver.feed(20)
    driver.trim()
    driver.feed(20)
    with monkeypatch.context() as patch:
        patch.setattr(CompactionGuard, "passed", lambda *_: 3)
        driver.trim()
        assert driver.held("trades")[0] == 0
    driver.trim()
    assert driver.held("trades")[0] == 20


def test_a_reader_that_begins_again_finds_its_records(driver):
    driver.feed(20)
    driver.trim()
    driver.feed(20)
    reports = driver.shared.view.reports
    scope = reports["trades.0"]
    reports["trades.0"] = replace(scope, resume={driver.place("trades"): 2})
    driver.trim()
    assert driver.held("trades")[0] == 0
    reports["trades.0"] = scope
    driver.trim()
    assert driver.held("trades")[0] == 20


def test_a_new_attempt_deletes_what_was_written_long_ago_at_once(driver):
    driver.now_ms = NOW - DAY
    for _ in range(20):
        driver.feed()
        driver.now_ms += HOUR
    for task in driver.tasks:
        task.trimmer = Trimmer(task.compaction, task.name)
    driver.trim(days=0)
    # 3 h of keep, 1 h of a window, 1 h of max_ahead; the 20th tuple is of hour 19
    assert driver.held("trades")[0] == 19 - 5


def test_without_max_ahead_a_new_attempt_knows_nothing_of_what_was_written_before():
    with Trimmed(max_ahead=None) as driver:
        driver.feed(20)
        driver.now_ms += 10 * DAY
        driver.trim(days=0)
        assert driver.held("trades")[0] == 0


def test_lost_records_take_the_marks_with_them(driver):
    driver.feed(20)
    driver.trim()
    report = driver.shared.view.reports["ingest.trades.0"]
    driver.shared.view.reports["ingest.trades.0"] = replace(report, rebuilt=PENDING)
    driver.trim()
    driver.shared.view.reports["ingest.trades.0"] = replace(report, rebuilt=20)
    driver.trim(days=0)
    assert driver.held("trades")[0] == 0
    for _ in range(2):
        driver.feed(20)
        driver.trim()
    assert driver.held("trades")[0] == 40


@pytest.mark.parametrize(("max_ahead", "newest_ms"), [("1h", NOW + 2 * HOUR), (None, FOREVER)])
def test_a_watermark_that_was_put_back_tells_nothing_of_what_had_moved_it(max_ahead, newest_ms):
    with Trimmed(max_ahead=max_ahead) as driver:
        driver.feed(2)
        report, reports = driver.shared.view.of("ingest.trades.0"), driver.shared.view.reports
        newest = partial(newest_event_ms, driver.shared, "sums", written_ms=NOW)
        assert newest() == NOW - DAY + 2 * HOUR  # with the extent of a window
        reports["ingest.trades.0"] = replace(report, lowered=2)
        assert newest() == newest_ms


@pytest.mark.parametrize(
    ("error", "said"), [(MovingLeaderError("no leader"), 0), (ClusterError("refused"), 1)]
)
def test_a_cluster_that_refuses_is_asked_once_and_a_leader_again(
    driver, monkeypatch, caplog, error, said
):
    asked = []

    def delete_before(place: TopicPartition, offset: int) -> None:
        asked.append(place.topic)
        raise error

    monkeypatch.setattr(driver.cluster, "delete_before", delete_before)
    driver.feed(20)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            driver.trim()
    assert (asked.count("trimmed.trades") == 1) == bool(said)
    lines = [r.message for r in caplog.records if "task ingest.trades.0: records that" in r.message]
    assert len(lines) == said
