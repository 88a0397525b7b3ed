"""An arc's topic: what is read from it, and how readers in one process share it."""

import polars as pl
import pytest

from errata import Network
from errata.processors.arcs import arc_topic as feeds
from errata.processors.arcs.arc_topic import ArcInput, Cursor, Feeds, Meta
from errata.testing import Driver
from errata.topics.cluster import LostOffsetError, Records, TopicPartition
from errata.topics.memory import MemoryCluster


def test_strangers_records_and_tombstones_in_an_arcs_topic_are_passed_over():
    net = Network("strange")
    fields = {"key": "string", "at": "timestamp-millis"}
    net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": {"key": "a", "at": 5}})
        driver.close_epoch()
        codec = driver.shared.codec("trades")
        place = TopicPartition(codec.topic, 0)
        (records,) = driver.cluster.reader({place: 0}).poll()
        (ours,) = records.values
        values = [b"{}", None, ours, b"\x00\x7f\x7f\x7f\x7fxx", ours[:-1], b"", ours]
        count = len(values)
        strange = Records(place, list(range(count)), [b""] * count, values, [0] * count)
        found = codec.decode(strange)
        assert found["offset"].to_list() == [2, 6]
        frame = found.drop("task", "attempt", "epoch", "offset")
        meta = Meta(found["task"][0], found["attempt"][0], found["epoch"][0])
        assert codec.values(frame, meta) == [ours, ours]


@pytest.mark.parametrize(
    "meta",
    [
        Meta("stranger.0", 1, 10**6),
        Meta("ingest.trades.0", 1, 2**61),
        Meta("ingest.trades.0", 2**63 - 1, 10**6),
    ],
)
def test_a_record_that_no_report_will_ever_cover_is_not_held(meta):
    net = Network("strange")
    fields = {"key": "string", "at": "timestamp-millis"}
    net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": {"key": "a", "at": 5}})
        driver.close_epoch()
        codec = driver.shared.codec("trades")
        place, view = TopicPartition(codec.topic, 0), driver.shared.view
        (records,) = driver.cluster.reader({place: 0}).poll()
        frame = codec.decode(records).drop("task", "attempt", "epoch", "offset")
        keys, values = codec.encode(frame, meta)
        driver.cluster.send(codec.topic, partition=0, key=keys[0], value=values[0])
        driver.send("trades", {"op": "insert", "after": {"key": "b", "at": 6}})
        driver.close_epoch()
        reader = ArcInput(view, codec, 0, done=-1, resume=0)
        reader.poll()
        assert reader.take(2)["after.key"].to_list() == ["a", "b"]
        assert reader.drop(2) == view.complete("trades", 0)[1]
        assert reader.pending == []
        reader.close()


PLACE = TopicPartition("arc", 0)


@pytest.fixture
def cluster():
    cluster = MemoryCluster(clock_ms=lambda: 0)
    cluster.create("arc", 1)
    return cluster


@pytest.fixture
def decoded():
    return []


@pytest.fixture
def shared(cluster, decoded):
    def decode(records):
        decoded.extend(records.offsets)
        return pl.DataFrame({"offset": records.offsets, "value": records.values})

    return Feeds(cluster, PLACE, decode)


def send(cluster, *values):
    for value in values:
        cluster.send("arc", partition=0, key=None, value=value)


def read(cursor, limit=1_000):
    found = cursor.poll(limit=limit)
    for records, frame in found:
        assert records.values == frame["value"].to_list()
        assert records.offsets == frame["offset"].to_list()
    return [value for records, _ in found for value in records.values]


def test_what_two_read_is_decoded_once_and_dropped_when_both_have_passed_it(
    cluster, shared, decoded
):
    one, other = Cursor(shared, 0), Cursor(shared, 0)
    send(cluster, b"a", b"b")
    assert read(one) == [b"a", b"b"]
    send(cluster, b"c")
    assert read(other) == [b"a", b"b"]
    assert read(other) == [b"c"]
    assert read(one) == [b"c"]
    assert (read(one), read(other)) == ([], [])
    assert (one.position, other.position) == (3, 3)
    assert decoded == [0, 1, 2]
    assert not shared.main.chunks


def test_one_that_begins_within_what_is_kept_gets_the_rest_of_it(cluster, shared, decoded):
    slow, fast = Cursor(shared, 0), Cursor(shared, 0)
    send(cluster, b"a", b"b", b"c")
    read(fast)
    late = Cursor(shared, 1)
    assert read(late) == [b"b", b"c"]
    assert read(slow) == [b"a", b"b", b"c"]
    assert decoded == [0, 1, 2]


def test_one_that_begins_before_what_is_kept_reads_alone_until_it_is_where_the_others_are(
    cluster, shared, decoded
):
    send(cluster, b"a", b"b")
    first = Cursor(shared, 0)
    read(first)
    late = Cursor(shared, 0)
    assert late.feed is not first.feed
    assert read(late, limit=1) == [b"a"]
    assert read(late) == [b"b"]
    assert read(late) == []
    assert late.feed is first.feed
    send(cluster, b"c")
    assert (read(late), read(first)) == ([b"c"], [b"c"])
    assert decoded == [0, 1, 0, 1, 2]


def test_a_slow_one_holds_up_a_bounded_number_of_records_and_misses_none(
    cluster, shared, monkeypatch
):
    monkeypatch.setattr(feeds, "MOST_ROWS", 3)
    slow, fast = Cursor(shared, 0), Cursor(shared, 0)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        send(cluster, value)
        assert read(fast) == [value]
        assert sum(len(chunk.records) for chunk in fast.feed.chunks) <= 3
    assert slow.feed is not fast.feed
    assert read(slow) == [b"a", b"b", b"c", b"d", b"e"]


def test_no_more_than_the_limit_comes_at_once(cluster, shared):
    slow, fast = Cursor(shared, 0), Cursor(shared, 0)
    for value in (b"a", b"b", b"c"):
        send(cluster, value)
        read(fast)
    assert [read(slow, limit=2), read(slow, limit=2)] == [[b"a", b"b"], [b"c"]]


def test_all_learn_that_the_log_has_lost_what_follows_and_new_ones_begin_afresh(cluster, shared):
    one, other = Cursor(shared, 0), Cursor(shared, 0)

    def lost(**_):
        raise LostOffsetError(PLACE, 0)

    one.feed.reader.poll = lost
    for cursor in (one, other):
        with pytest.raises(LostOffsetError):
            cursor.poll(limit=10)
    send(cluster, b"a")
    assert read(Cursor(shared, 0)) == [b"a"]


def test_no_one_reads_on_beside_what_was_written_in_the_place_of_what_is_lost(cluster, shared):
    one, other = Cursor(shared, 0), Cursor(shared, 0)
    send(cluster, b"a", b"b", b"c")
    read(one), read(other)
    cluster.lose(PLACE, 1)
    send(cluster, b"d", b"e")
    with pytest.raises(LostOffsetError):
        read(one)
    one.close()
    again = Cursor(shared, 0)
    assert read(again) == [b"a", b"d", b"e"]
    assert shared.main.covers(other.position)
    with pytest.raises(LostOffsetError):
        read(other)


def test_the_reader_is_closed_with_its_last_cursor(cluster, shared):
    one, other = Cursor(shared, 0), Cursor(shared, 0)
    main, closed = shared.main, []
    main.reader.close = lambda: closed.append(True)
    one.close()
    one.close()
    assert not closed
    other.close()
    assert closed
    assert Cursor(shared, 0).feed is not main
