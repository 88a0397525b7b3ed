"""Readers of a partition in one process share what it fetches, and what its tasks hand over."""

from types import SimpleNamespace

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.arcs import feeds
from errata.processors.arcs.feeds import Chunk, Cursor, Feeds
from errata.processors.tasks import handover
from errata.testing import Driver
from errata.topics.cluster import LostOffsetError, Records, TopicPartition
from errata.topics.memory import MemoryCluster

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


def read(cursor, limit=1_000, **known):
    found = cursor.poll(limit=limit, **known)
    for records, frame, *_ in found:
        assert records.values == frame["value"].to_list()
        assert records.offsets == frame["offset"].to_list()
    return [value for records, *_ in found for value in records.values]


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


# ---------------------------------------------------------------- what is handed over


def write(cluster, *values, writer="writer"):
    """Commit values in a transaction, and return them as a chunk that nobody had to fetch."""
    transactions = cluster.transactions(writer)
    transactions.begin()
    count = len(values)
    transactions.produce("arc", partitions=[0] * count, keys=[None] * count, values=values)
    offsets = [*transactions.flush()[PLACE]]
    transactions.commit()
    records = Records(PLACE, offsets, [None] * count, [*values], [0] * count)
    return Chunk(records, pl.DataFrame({"offset": offsets, "value": values}), writer)


def hand(shared, chunk):
    if shared.expects(chunk.first):
        shared.hand(chunk)


@pytest.fixture
def clock(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(feeds, "monotonic", lambda: clock[0])
    return clock


def test_what_is_handed_over_is_neither_fetched_nor_decoded(cluster, shared, decoded, clock):
    one, other = Cursor(shared, 0), Cursor(shared, 0)
    hand(shared, write(cluster, b"a", b"b"))
    hand(shared, write(cluster, b"c"))
    assert read(one) == read(other) == [b"a", b"b", b"c"]
    hand(shared, write(cluster, b"d"))
    assert (read(one), read(other)) == ([b"d"], [b"d"])
    assert one.position == cluster.end(PLACE) - 1, "the end of the transaction follows"
    assert decoded == []


def test_who_is_handed_nothing_more_reads_on(cluster, shared, decoded, clock):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a", b"b"))
    assert read(one) == [b"a", b"b"]
    write(cluster, b"c")
    assert read(one) == []
    clock[0] += feeds.HANDED_S
    assert read(one) == [b"c"]
    assert decoded == [3], "the last one that was handed over is read again, and not decoded"
    assert one.position == cluster.end(PLACE)


def test_what_is_known_to_be_there_is_read_at_once(cluster, shared, decoded, clock):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a"))
    assert read(one, known=1) == [b"a"]
    write(cluster, b"b", writer="another process")
    assert read(one, known=1) == []
    assert read(one, known=3) == [b"b"]


def test_several_tasks_of_a_process_hand_over(cluster, shared, decoded, clock):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a", writer="one"))
    hand(shared, write(cluster, b"b", writer="two"))
    assert read(one) == [b"a", b"b"]
    hand(shared, write(cluster, b"c", writer="two"))
    assert read(one) == [b"c"]
    assert decoded == []


def test_a_record_of_others_is_not_taken_for_the_end_of_a_transaction():
    def chunk(offset, writer):
        return Chunk(Records(PLACE, [offset], [None], [b"a"], [0]), pl.DataFrame(), writer)

    before = chunk(0, "one")
    assert before.is_next(chunk(1, "two"))
    assert before.is_next(chunk(2, "one"))
    assert not before.is_next(chunk(2, "two"))
    assert not before.is_next(chunk(3, "one"))


def test_what_others_have_written_before_is_read_at_once(cluster, shared, decoded, clock):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a"))
    send(cluster, b"b")
    hand(shared, write(cluster, b"c"))
    assert read(one) == [b"a", b"b", b"c"]
    hand(shared, write(cluster, b"d"))
    assert read(one) == [b"d"]
    assert decoded == [2]


def test_one_that_is_behind_reads_what_comes_before_and_takes_the_rest(
    cluster, shared, decoded, clock
):
    send(cluster, b"a", b"b")
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"c"))
    hand(shared, write(cluster, b"d"))
    assert read(one, limit=1) == [b"a"]
    assert read(one) == [b"b", b"c", b"d"]
    hand(shared, write(cluster, b"e"))
    assert read(one) == [b"e"]
    assert decoded == [0, 1]
    write(cluster, b"f")
    clock[0] += feeds.HANDED_S
    assert read(one) == [b"f"]


def test_what_others_write_between_is_read(cluster, shared, decoded, clock):
    send(cluster, b"a")
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"b"))
    send(cluster, b"c")
    hand(shared, write(cluster, b"d"))
    assert read(one) + read(one) == [b"a", b"b", b"c", b"d"]
    assert decoded == [0, 3]


@pytest.fixture
def certain(cluster, shared, clock):
    """Returns a chunk of another transaction than the last one, certain once it is in a set."""
    known = set()

    def write_as(value, writer):
        chunk = write(cluster, value, writer=writer)
        return chunk._replace(is_certain=lambda: value in known)

    return SimpleNamespace(write=write_as, known=known)


def test_what_is_certain_is_taken_whatever_lies_before_it(cluster, shared, decoded, certain):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    assert read(one) == [b"a"]
    write(cluster, b"-", writer="three")
    hand(shared, certain.write(b"b", "two"))
    hand(shared, certain.write(b"c", "one"))
    assert read(one, known=8) == []
    certain.known |= {b"b", b"c"}
    assert read(one, known=8) == [b"b", b"c"]
    assert decoded == []


def test_what_stays_uncertain_is_read(cluster, shared, decoded, clock, certain):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    write(cluster, b"b", writer="three")
    hand(shared, certain.write(b"c", "two"))
    assert read(one) == [b"a"]
    assert read(one) == []
    clock[0] += feeds.UNCERTAIN_S
    assert read(one) + read(one) == [b"b", b"c"]
    assert decoded == [2]


@pytest.mark.parametrize("missed", [False, True])
def test_what_comes_after_something_that_was_missed_is_read(
    cluster, shared, decoded, certain, missed
):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    assert read(one) == [b"a"]
    write(cluster, b"b", writer="two")
    if missed:
        shared.main.miss()
    certain.known.add(b"c")
    hand(shared, certain.write(b"c", "three")._replace(before=1))
    assert read(one) + read(one) == ([b"b", b"c"] if missed else [b"c"])
    certain.known.add(b"d")
    hand(shared, certain.write(b"d", "one"))
    assert read(one) == [b"d"]
    assert decoded == ([2] if missed else [])


def test_one_that_begins_reads_up_to_the_last_that_it_was_not_handed(
    cluster, shared, decoded, certain
):
    certain.known |= {b"c", b"d"}
    early, missed = certain.write(b"a", "one"), certain.write(b"b", "two")
    one, after = Cursor(shared, 0), missed.last + 1
    hand(shared, early._replace(before=after))
    hand(shared, certain.write(b"c", "three")._replace(before=after))
    assert read(one) + read(one) == [b"a", b"b", b"c"]
    hand(shared, certain.write(b"d", "one"))
    assert read(one) == [b"d"]
    assert decoded == [2]


def test_what_was_committed_later_may_come_before(cluster, shared, decoded, certain):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    assert read(one) == [b"a"]
    early, late = certain.write(b"b", "two"), certain.write(b"c", "three")
    hand(shared, late)
    hand(shared, early)
    certain.known |= {b"b", b"c"}
    assert read(one) == [b"b", b"c"]
    assert decoded == []


def test_what_is_certain_waits_for_all_of_the_transaction_before_it(
    cluster, shared, decoded, certain
):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    assert read(one) == [b"a"]
    early, late = write(cluster, b"b", b"c", writer="two"), certain.write(b"d", "three")
    hand(shared, late)
    certain.known.add(b"d")
    first = early._replace(records=early.records.before(3), frame=early.frame[:1])
    hand(shared, first)
    hand(shared, early.since(3))
    certain.known |= {b"b", b"c"}
    hand(shared, certain.write(b"e", "one"))
    assert read(one) + read(one) == [b"b", b"c", b"d"]


def test_what_has_been_taken_for_certain_is_not_taken_before(cluster, shared, decoded, certain):
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    early, late = certain.write(b"b", "two"), certain.write(b"c", "three")
    certain.known.add(b"c")
    hand(shared, late)
    assert read(one) == [b"a", b"c"]
    hand(shared, early)
    assert read(one) == []


def test_nothing_is_certain_after_more_than_is_kept_ahead(
    cluster, shared, decoded, monkeypatch, certain
):
    monkeypatch.setattr(feeds, "MOST_ROWS", 2)
    one = Cursor(shared, 0)
    hand(shared, certain.write(b"a", "one"))
    assert read(one) == [b"a"]
    for value in (b"b", b"c", b"d"):
        hand(shared, certain.write(value, value.decode()))
    certain.known |= {b"c", b"d"}
    assert read(one) + read(one) + read(one) == [b"b", b"c", b"d"]
    assert decoded == [2]


def test_a_bounded_number_of_records_is_handed_over_ahead(cluster, shared, decoded, monkeypatch):
    monkeypatch.setattr(feeds, "MOST_ROWS", 2)
    send(cluster, b"a")
    one = Cursor(shared, 0)
    for value in (b"b", b"c", b"d"):
        hand(shared, write(cluster, value))
    assert read(one) + read(one) == [b"a", b"b", b"c", b"d"]
    assert decoded == [0, 1]


def test_what_was_handed_over_ahead_and_lost_is_not_taken(cluster, shared, decoded, clock):
    send(cluster, b"a")
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"b"))
    cluster.lose(PLACE, 1)
    hand(shared, write(cluster, b"c"))
    assert read(one) + read(one) == [b"a", b"c"]


def test_what_was_handed_over_may_be_deleted_once_all_have_passed_it(cluster, shared, clock):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a", b"b"))
    assert read(one) == [b"a", b"b"]
    cluster.delete_before(PLACE, cluster.end(PLACE))
    write(cluster, b"c")
    clock[0] += feeds.HANDED_S
    assert [read(one), read(one)] == [[], [b"c"]]


def test_what_has_been_read_is_not_taken_again(cluster, shared, decoded, clock):
    one = Cursor(shared, 0)
    chunk = write(cluster, b"a", b"b")
    assert read(one) == [b"a", b"b"]
    hand(shared, chunk)
    assert read(one) == []


@pytest.mark.parametrize("hands", [False, True], ids=["another wrote there", "it wrote there"])
def test_what_was_handed_over_and_then_lost_is_noticed(cluster, shared, clock, hands):
    one = Cursor(shared, 0)
    hand(shared, write(cluster, b"a", b"b"))
    read(one)
    cluster.lose(PLACE, 1)
    chunk = write(cluster, b"c", b"d")
    if hands:
        hand(shared, chunk)
    clock[0] += feeds.HANDED_S
    with pytest.raises(LostOffsetError):
        read(one)
    assert read(Cursor(shared, 0)) == [b"a", b"c", b"d"]


def test_a_clock_that_is_behind_does_not_make_old_what_is_handed_over(monkeypatch):
    net, taken = Network("young"), []
    fields = {"key": "string", "at": "timestamp-millis"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=["key"], window=tumbling("1s"), n="count(*)")
    monkeypatch.setattr(handover, "time", SimpleNamespace(time_ns=lambda: 0))
    monkeypatch.setattr(feeds.Feed, "hand", lambda _, chunk: taken.extend(chunk.records.times_ms))
    with Driver(net) as driver:
        driver.cluster.clock_ms = lambda: 10**12
        driver.shared.hands_over = True
        for number in range(2):
            after = {"key": f"k{number}", "at": 5}
            driver.send("trades", {"op": "insert", "after": after})
            driver.close_epoch()
    assert taken[-1] == 10**12
