"""A topic played again: by record time across partitions, in its own order in each."""

from dataclasses import dataclass, field

import pytest

from errata.client import recorded as module
from errata.client.recorded import StuckReadError, recorded
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster


@dataclass
class Clock:
    now: int = 0

    def __call__(self) -> int:
        return self.now


@dataclass
class Told:
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self):
        self.cluster = MemoryCluster(clock_ms=self.clock)
        self.cluster.create("t", 3)

    def send(self, time_ms, partition, value):
        self.clock.now = time_ms
        self.cluster.send("t", partition=partition, key=b"k", value=value)

    def read(self, from_ms=None, until_ms=None):
        pieces = recorded(self.cluster, "t", from_ms=from_ms, until_ms=until_ms)
        return [value for _, values in pieces for value in values]


@pytest.fixture
def told():
    told = Told()
    for time_ms, partition, value in [
        (10, 0, b"a"), (20, 1, b"b"), (30, 0, b"c"), (30, 2, None), (40, 1, b"d"), (50, 0, b"e"),
    ]:  # fmt: skip
        told.send(time_ms, partition, value)
    return told


def test_records_come_in_the_order_of_their_times(told):
    assert told.read() == [b"a", b"b", b"c", None, b"d", b"e"]


def test_a_range_begins_with_its_first_moment_and_ends_before_its_last(told):
    assert told.read(from_ms=20, until_ms=40) == [b"b", b"c", None]
    assert told.read(from_ms=51) == []


def test_records_of_a_partition_stay_in_their_order_though_their_times_fall(told):
    told.send(5, 0, b"late")
    assert told.read()[-2:] == [b"e", b"late"]


def test_what_comes_after_the_start_is_not_waited_for(told):
    pieces = recorded(told.cluster, "t", from_ms=None, until_ms=None)
    first = next(pieces)
    told.send(60, 0, b"new")
    rest = [value for _, values in pieces for value in values]
    assert b"new" not in [*first[1], *rest]


def test_an_open_transaction_that_stays_is_told_with_its_partition(told, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_S", 0.0)
    life = told.cluster.transactions("other")
    life.begin()
    life.produce("t", partitions=[1], keys=[None], values=[b"open"])
    with pytest.raises(StuckReadError, match="partition 1 at 2"):
        told.read()
    assert told.cluster.end(TopicPartition("t", 1)) == 3
