"""Rules that hold for every cluster: the one in memory and Kafka."""

from collections.abc import Callable
from itertools import count

import pytest

from errata.topics.admin import create_topics
from errata.topics.cluster import (
    LARGEST,
    Cluster,
    ClusterError,
    DoubtfulCommitError,
    FencedError,
    Reader,
    Records,
    RecordTooLargeError,
    TopicPartition,
    catch_up,
)
from errata.topics.memory import MemoryCluster
from errata.topics.settings import TopicSpec, passing

NUMBERS = count()


class World:
    """A cluster and what a test does with it most."""

    def __init__(self, cluster: Cluster, create: Callable[[str, int], None]) -> None:
        self.cluster, self._create = cluster, create
        self.patience_s = 0.0 if isinstance(cluster, MemoryCluster) else 3.0

    def topic(self, partitions: int = 1) -> str:
        name = f"world.{next(NUMBERS)}"
        self._create(name, partitions)
        return name

    def life(self, task: str):
        return self.cluster.transactions(task)

    def read(self, *sources: TopicPartition) -> list[Records]:
        reader = self.cluster.reader(dict.fromkeys(sources, 0))
        found = [r for s in sources for r in catch_up(self.cluster, reader, s)]
        reader.close()
        return found

    def until(
        self, position: int, reader: Reader, source: TopicPartition, *, limit: int = 50_000
    ) -> list[Records]:
        """Read until a position is reached; fails after some hundred polls."""
        found: list[Records] = []
        for _poll in range(200):
            if reader.position(source) >= position:
                return found
            found += reader.poll(limit=limit, timeout_s=0.2)
        raise AssertionError(f"position {position} was not reached, but {reader.position(source)}")

    def values(self, *sources: TopicPartition) -> list[bytes | None]:
        return [value for records in self.read(*sources) for value in records.values]


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request) -> World:
    if request.param == "memory":
        memory = MemoryCluster()
        return World(memory, memory.create)
    settings = request.getfixturevalue("broker").settings
    return World(
        request.getfixturevalue("cluster"),
        lambda name, partitions: create_topics(settings, [TopicSpec(name, partitions, passing())]),
    )


def write(life, topic: str, *values: bytes | None, partition: int = 0) -> None:
    count = len(values)
    life.produce(topic, partitions=[partition] * count, keys=[b"k"] * count, values=values)


def committed(life, topic: str, *values: bytes | None) -> dict[TopicPartition, range]:
    life.begin()
    write(life, topic, *values)
    ends = life.flush()
    life.commit()
    return ends


def test_records_of_a_transaction_are_read_only_after_its_commit(world):
    source = TopicPartition(world.topic(), 0)
    life = world.life("visible")
    committed(life, source.topic, b"first")
    life.begin()
    write(life, source.topic, b"second")
    life.flush()
    reader = world.cluster.reader({source: 0})
    found = world.until(2, reader, source)  # the last stable offset: a record and its marker
    found += reader.poll(timeout_s=0.2)
    assert [records.values for records in found] == [[b"first"]]
    assert (reader.position(source), world.cluster.end(source)) == (2, 3)
    life.commit()
    found = list(catch_up(world.cluster, reader, source))
    assert [records.values for records in found] == [[b"second"]]
    # Kafka writes the marker after the commit has returned
    assert world.until(4, reader, source) == []
    assert world.cluster.end(source) == 4
    reader.close()
    life.close()


def test_an_open_transaction_holds_back_what_others_commit_behind_it(world):
    source = TopicPartition(world.topic(), 0)
    slow, quick = world.life("slow"), world.life("quick")
    committed(quick, source.topic, b"before")
    reader = world.cluster.reader({source: 0})
    world.until(2, reader, source)  # the marker stands before the open transaction
    slow.begin()
    write(slow, source.topic, b"slow")
    slow.flush()
    committed(quick, source.topic, b"quick")
    with pytest.raises(ClusterError, match=f"partition 0 of topic '{source.topic}'.*transaction"):
        list(catch_up(world.cluster, reader, source, limit_s=world.patience_s))
    assert reader.position(source) == 2
    slow.commit()
    assert world.values(source) == [b"before", b"slow", b"quick"]
    for each in (slow, quick, reader):
        each.close()


def test_aborted_records_are_never_read_and_positions_pass_them(world):
    source = TopicPartition(world.topic(), 0)
    life = world.life("aborted")
    life.begin()
    write(life, source.topic, b"lost")
    life.flush()
    life.close()
    reader = world.cluster.reader({source: 0})
    assert list(catch_up(world.cluster, reader, source)) == []
    assert world.until(2, reader, source) == []
    reader.close()


def test_a_newer_life_aborts_what_the_older_one_left_open_and_fences_it(world):
    source = TopicPartition(world.topic(), 0)
    old = world.life("twice")
    old.begin()
    write(old, source.topic, b"old")
    old.flush()
    new = world.life("twice")
    committed(new, source.topic, b"new")

    def go_on():
        write(old, source.topic, b"older")
        old.flush()

    with pytest.raises(FencedError, match="'twice'"):
        go_on()
    with pytest.raises(FencedError, match="'twice'"):
        old.commit()
    assert world.values(source) == [b"new"]
    old.close()
    new.close()


def test_a_fenced_life_can_begin_nothing_new(world):
    source = TopicPartition(world.topic(), 0)
    old = world.life("again")
    committed(old, source.topic, b"old")
    new = world.life("again")
    with pytest.raises(FencedError):
        committed(old, source.topic, b"zombie")
    old.close()
    new.close()
    assert world.values(source) == [b"old"]


def test_flush_tells_the_offsets_of_own_records_in_each_partition(world):
    topic = world.topic(3)
    life = world.life("ends")
    assert committed(life, topic, b"a", b"b") == {(topic, 0): range(2)}
    life.begin()
    life.produce(topic, partitions=[2, 0, 2], keys=[b"x", None, b"z"], values=[b"1", b"2", None])
    life.produce(topic, partitions=[0], keys=[b"y"], values=[b"3"])
    # A marker stands at offset 2.
    assert life.flush() == {(topic, 0): range(3, 5), (topic, 2): range(2)}
    life.produce(topic, partitions=[2], keys=[b"y"], values=[b"4"])
    assert life.flush() == {(topic, 2): range(2, 3)}
    assert life.flush() == {}
    life.commit()
    read = {records.source.partition: records for records in world.read(TopicPartition(topic, 2))}
    assert (read[2].offsets, read[2].keys, read[2].values) == (
        [0, 1, 2],
        [b"x", b"z", b"y"],
        [b"1", None, b"4"],
    )
    assert all(ms > 0 for ms in read[2].times_ms)
    life.close()


def test_records_of_several_partitions_come_apart_and_in_order(world):
    topic, number = world.topic(3), 5000
    life = world.life("many")
    life.begin()
    values = [b"%d" % i for i in range(number)]
    life.produce(
        topic, partitions=[i % 3 for i in range(number)], keys=[None] * number, values=values
    )
    life.flush()
    life.commit()
    life.close()
    sources = [TopicPartition(topic, p) for p in range(3)]
    found = world.read(*sources)
    for source in sources:
        own = [value for records in found if records.source == source for value in records.values]
        assert own == values[source.partition :: 3]


def test_a_reader_starts_where_it_is_told_and_takes_no_more_than_its_limit(world):
    source = TopicPartition(world.topic(), 0)
    life = world.life("limit")
    committed(life, source.topic, *[b"%d" % i for i in range(10)])
    life.close()
    reader = world.cluster.reader({source: 4})
    pieces = [records.offsets for records in world.until(10, reader, source, limit=4)]
    assert [offset for piece in pieces for offset in piece] == [4, 5, 6, 7, 8, 9]
    assert max(map(len, pieces)) <= 4
    reader.close()


def test_a_partition_added_later_is_read_as_well(world):
    topic = world.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for source in (first, second):
        world.cluster.send(topic, partition=source.partition, key=None, value=b"x")
    reader = world.cluster.reader({first: 0})
    world.until(1, reader, first)
    reader.add(second, 0)
    found = world.until(1, reader, second)
    assert [records.source for records in found] == [second]
    reader.close()


def test_a_record_sent_outside_transactions_is_read_without_a_commit(world):
    source = TopicPartition(world.topic(), 0)
    reader = world.cluster.reader({source: 0})
    world.cluster.send(source.topic, partition=0, key=b"k", value=b"request")
    world.cluster.send(source.topic, partition=0, key=b"k", value=None)
    found = world.until(2, reader, source)
    assert [v for records in found for v in records.values] == [b"request", None]
    reader.close()


def test_a_record_too_large_is_refused_before_any_of_its_batch_is_produced(world):
    source = TopicPartition(world.topic(), 0)
    life = world.life("large")
    life.begin()
    with pytest.raises(RecordTooLargeError, match="record 1 of a batch") as refused:
        write(life, source.topic, b"small", b"x" * LARGEST)
    assert (refused.value.index, refused.value.limit) == (1, LARGEST)
    write(life, source.topic, b"goes on")
    life.flush()
    life.commit()
    life.close()
    with pytest.raises(RecordTooLargeError):
        world.cluster.send(source.topic, partition=0, key=None, value=b"x" * (LARGEST + 1))
    assert world.values(source) == [b"goes on"]


def test_what_does_not_exist_is_named(world):
    topic = world.topic(2)
    assert world.cluster.partitions(topic) == 2
    with pytest.raises(ClusterError, match=r"topic 'nowhere'.*create it"):
        world.cluster.partitions("nowhere")
    with pytest.raises(ClusterError, match="'nowhere'"):
        world.cluster.end(TopicPartition("nowhere", 0))
    with pytest.raises(ClusterError, match="'nowhere'"):
        world.cluster.reader({TopicPartition("nowhere", 0): 0})
    with pytest.raises(ClusterError, match="has 2 partitions, but partition 2"):
        world.cluster.reader({TopicPartition(topic, 2): 0})


def test_a_life_can_be_closed_twice_and_is_of_no_use_then(world):
    topic = world.topic()
    life = world.life("closed")
    committed(life, topic, b"x")
    life.close()
    life.close()
    with pytest.raises(DoubtfulCommitError, match="'closed'"):
        life.begin()
