"""A sweeper whose place in the topic is gone starts over."""

from pathlib import Path

import polars as pl
import pytest

from errata import Network, tumbling
from errata.sweepers import segments
from errata.sweepers.sweeper import REPORT_MS, Sweeper
from errata.testing import Driver
from errata.topics.cluster import LostOffsetError, TopicPartition

MINUTE = 60_000


def network(name: str) -> Network:
    """Declare a connection point whose sweepers are tried, and a box that replays it."""
    net = Network(name)
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)")
    return net


def insert(driver: Driver, key: str, minute: int, price: int = 1) -> None:
    """Send a trade, and close its epoch."""
    row = {"key": key, "at": minute * MINUTE, "price": price}
    driver.send("trades", {"op": "insert", "after": row})
    driver.close_epoch()


def test_a_sweeper_that_lost_its_offset_drops_its_copy_and_reads_the_topic_again():
    net = network("lost")

    def trade(key, minute, price):
        return {"op": "insert", "after": {"key": key, "at": minute * MINUTE, "price": price}}

    with Driver(net, mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("b", 15, 1)])
        driver.close_epoch()
        sweeper = driver.sweepers["trades"]
        before, cursor = sweeper.store, sweeper.input.cursor

        def lost(**_):
            raise LostOffsetError(sweeper.input.place, 1)

        cursor.poll = lost
        assert sweeper.follow()
        assert sweeper.store is not before
        assert sweeper.input.cursor is not cursor
        driver.send("trades", trade("c", 2, 7))
        driver.close_epoch()
        assert [row["total"] for row in driver.table("sums")] == [12]


def test_reports_of_a_copy_that_was_lost_do_not_go_back():
    net = network("back")
    with Driver(net, mode="upstream") as driver:
        for minute in range(3):
            insert(driver, f"k{minute}", minute)
        sweeper, view = driver.sweepers["trades"], driver.shared.view
        sweeper._tell()
        view.poll()
        done = view.of(sweeper.name).done
        assert done >= 0
        sweeper._start_over("it is tried")
        sweeper._tell()
        for minute in range(3, 6):
            sweeper.follow()
            insert(driver, f"k{minute}", minute)
        sweeper._tell()
        view.poll()
        assert view.invalid_count == 0
        assert view.of(sweeper.name).done > done


def test_versions_that_the_cleaner_took_before_they_were_read_do_not_live_on(tmp_path):
    """v1 is in the copy, the replace by v2 is compacted away, and v2's replace by v3 is read."""
    net = network("cleaned")

    def version(minute, price):
        return {"key": "a", "at": minute * MINUTE, "price": price}

    with Driver(net, mode="upstream") as driver:
        driver.send("trades", {"op": "insert", "after": version(1, 5)})
        driver.close_epoch()
        driver.shared.compaction_lag_ms = 0
        late = Sweeper(
            driver.shared, "trades", partition=0, folder=tmp_path, clock_ms=lambda: 10**6
        )
        late.follow()
        for old, new in (((1, 5), (25, 6)), ((25, 6), (45, 7))):
            line = {"op": "replace", "before": version(*old), "after": version(*new)}
            driver.send("trades", line)
            driver.close_epoch()
        driver.cluster.compact("cleaned.trades", horizons=[2**40])
        for _ in range(3):
            late.follow()

        def prices(first: int, last: int) -> list[int]:
            asked = pl.DataFrame({"from_ms": [first * MINUTE], "to_ms": [last * MINUTE]})
            return late.answer(3, asked).tuples["price"].to_list()

        assert (prices(0, 10), prices(20, 30), prices(40, 50)) == ([], [], [7])
        assert late.store.floor == 3
        late.close()


def test_a_copy_that_was_away_forgets_what_another_copy_saw_deleted(tmp_path):
    """Both report as one sweeper: the tombstone waits for the one that is ahead only."""
    net = network("copies")

    def trade(key, minute):
        return {"key": key, "at": minute * MINUTE, "price": minute}

    with Driver(net, mode="upstream") as driver:
        now = [0]

        def copy(name):
            return Sweeper(
                driver.shared, "trades", partition=0, folder=tmp_path / name, segment_rows=1,
                clock_ms=lambda: now[0],
            )  # fmt: skip

        ahead, late = copy("ahead"), copy("late")
        driver.send("trades", [{"op": "insert", "after": trade(key, 1)} for key in "ab"])
        driver.close_epoch()
        for sweeper in (ahead, late):
            now[0] += REPORT_MS
            sweeper.follow()
        late.close()
        driver.send("trades", {"op": "delete", "before": trade("a", 1)})
        driver.close_epoch()
        now[0] += REPORT_MS
        ahead.follow()
        place = TopicPartition("copies.trades", 0)
        end = driver.cluster.end(place)
        driver.send("trades", {"op": "insert", "after": trade("c", 2)})
        while driver.cluster.end(place) < end + 2:  # the insert and the tombstone
            driver.close_epoch()
        driver.shared.compaction_lag_ms, now[0] = 1, 10**15
        driver.cluster.compact(place.topic, horizons=[2**40])
        driver.shared.codec("trades")._feeds.clear()  # as in another process
        late = copy("late")
        for _ in range(5):
            now[0] += REPORT_MS
            late.follow()
        asked = pl.DataFrame({"from_ms": [0], "to_ms": [10 * MINUTE]})
        assert sorted(late.answer(late.store.upto, asked).tuples["key"]) == ["b", "c"]
        for sweeper in (ahead, late):
            sweeper.close()


def test_a_restart_after_a_slow_day_reads_nothing_again(tmp_path, caplog):
    net = network("slow")
    with Driver(net, mode="upstream") as driver:
        now = [10**12]
        driver.cluster.clock_ms = lambda: now[0]
        driver.shared.compaction_lag_ms = 10 * REPORT_MS

        def started() -> Sweeper:
            return Sweeper(
                driver.shared, "trades", partition=0, folder=tmp_path, clock_ms=lambda: now[0]
            )

        sweeper = started()
        for minute in range(2):
            insert(driver, f"k{minute}", minute)
            for _ in range(30):  # thrice as long as superseded records stay
                now[0] += REPORT_MS
                sweeper.follow()
        sweeper.close()
        sweeper = started()
        for _ in range(5):
            now[0] += REPORT_MS
            sweeper.follow()
        asked = pl.DataFrame({"from_ms": [0], "to_ms": [10 * MINUTE]})
        assert sweeper.answer(sweeper.store.upto, asked).tuples.height == 2
        assert "read from the topic again" not in caplog.text
        sweeper.close()


@pytest.mark.parametrize("found_by", ["a request", "the scrub", "a rewrite"])
def test_a_damaged_copy_is_read_from_the_topic_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, found_by: str
) -> None:
    net = network("rotten")
    with Driver(net, mode="upstream") as driver:
        for minute in range(6):
            insert(driver, f"k{minute % 3}", minute, minute)
        now = [0]
        sweeper = Sweeper(
            driver.shared,
            "trades",
            partition=0,
            folder=tmp_path / "copy",
            clock_ms=lambda: now[0],
            segment_rows=2,
        )
        sweeper.follow()
        done = sweeper.store.upto
        asked = pl.DataFrame({"from_ms": [0], "to_ms": [10 * MINUTE]})
        segments._CACHE._frames.clear()
        for file in (tmp_path / "copy").glob("segment-*"):
            file.write_bytes(bytes(file.stat().st_size))
        if found_by == "a request":
            assert sweeper.answer(done, asked) is None
        elif found_by == "a rewrite":
            sweeper.store.scrub = lambda: None
            sweeper.store.raise_floor = lambda epoch: list(sweeper.store._kept(epoch))
        else:
            sweeper.store.raise_floor = lambda epoch: None
        for _ in range(30):
            now[0] += REPORT_MS
            sweeper.follow()
        assert "its copy is dropped and read from the topic again: segment-" in caplog.text
        assert caplog.text.count("read from the topic again") == 1
        assert sorted(sweeper.answer(done, asked).tuples["price"]) == [3, 4, 5]
        sweeper.close()
