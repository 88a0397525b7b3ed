"""Many readers over one connection: each gets its own partitions, from where it asked."""

import pytest

from errata.topics import shared_reader
from errata.topics.cluster import LostOffsetError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.shared_reader import SharedReads

ONE, TWO = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    for topic in "ab":
        made.create(topic, 1)
        for value in (b"0", b"1", b"2"):
            made.send(topic, partition=0, key=None, value=value)
    return made


def values(batches: list) -> list[bytes]:
    return [value for records in batches for value in records.values]


def test_each_reader_gets_its_own_records_though_another_one_has_fetched(
    cluster: MemoryCluster,
) -> None:
    shared = SharedReads(cluster)
    one, two = (shared.sharing().reader({place: at}) for place, at in ((ONE, 0), (TWO, 1)))
    assert values(one.poll()) == [b"0", b"1", b"2"]
    assert (one.position(ONE), two.position(TWO)) == (3, 1)  # fetched, and not yet taken
    assert shared.waiting == {TWO}
    cluster.send("b", partition=0, key=None, value=b"3")
    assert values(two.poll()) == [b"1", b"2"]
    assert values(two.poll()) == [b"3"]
    assert (two.position(TWO), shared.waiting) == (4, set())


def test_a_limit_leaves_the_rest_for_the_next_poll(cluster: MemoryCluster) -> None:
    shared = SharedReads(cluster)
    both = shared.sharing().reader({ONE: 0, TWO: 0})
    found: list[bytes] = []
    while polled := both.poll(limit=1):
        assert len(polled) == 1
        found += values(polled)
    assert sorted(found) == sorted([b"0", b"1", b"2"] * 2)


def test_a_lost_offset_is_raised_to_its_reader_alone(cluster: MemoryCluster) -> None:
    shared = SharedReads(cluster)
    one, two = (shared.sharing().reader({place: at}) for place, at in ((ONE, 9), (TWO, 0)))
    shared.fetch()
    assert values(two.poll()) == [b"0", b"1", b"2"]
    for _ in range(2):
        with pytest.raises(LostOffsetError):
            one.poll()
    one.remove(ONE)
    one.add(ONE, 1)
    assert values(one.poll()) == [b"1", b"2"]


def test_who_is_closed_gets_nothing_and_leaves_the_others(cluster: MemoryCluster) -> None:
    shared = SharedReads(cluster)
    one, two = (shared.sharing().reader({place: 0}) for place in (ONE, TWO))
    one.close()
    assert values(two.poll()) == [b"0", b"1", b"2"]
    assert shared.sharing().end(ONE) == 3
    shared.close()


def test_what_arrived_beside_a_lost_offset_is_not_lost(cluster: MemoryCluster) -> None:
    reader = cluster.reader({TWO: 0, ONE: 9})
    with pytest.raises(LostOffsetError):
        reader.poll()
    reader.remove(ONE)
    assert values(reader.poll()) == [b"0", b"1", b"2"]


def test_of_a_slow_reader_s_partition_no_more_is_read_until_it_takes_what_there_is(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reader, "MOST_WAITING", 2)
    shared = SharedReads(cluster)
    slow, quick = (shared.sharing().reader({place: 0}) for place in (ONE, TWO))
    for value in (b"3", b"4", b"5"):
        shared.fetch()
        assert values(quick.poll())
        for topic in "ab":
            cluster.send(topic, partition=0, key=None, value=value)
    assert sum(map(len, slow.arrived[ONE])) == 3  # what came at once
    assert slow.position(ONE) == 0
    assert values(slow.poll()) == [b"0", b"1", b"2"]
    assert slow.position(ONE) == 3
    assert values(slow.poll()) == [b"3", b"4", b"5"]
    assert values(quick.poll()) == [b"5"]
    shared.fetch()
    for reader in (slow, quick):  # also while one is paused
        reader.close()
        reader.close()
