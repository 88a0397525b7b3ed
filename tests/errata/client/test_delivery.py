"""Records that are sent by hand have arrived when the command says so."""

import pytest

from errata.client.delivery import Parcel, deliver
from errata.topics.cluster import ClusterError, TopicPartition
from errata.topics.memory import MemoryCluster

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("t", 2)
    made.send("t", partition=0, key=b"k", value=b"v")  # the same as one that is sent later
    return made


def test_each_record_has_its_offset_in_order(cluster: MemoryCluster) -> None:
    same = Parcel(ONE, b"k", b"v")
    records = [same, Parcel(TWO, None, b"w"), same, Parcel(ONE, b"k", None)]
    assert deliver(cluster, records) == [1, 0, 2, 3]
    assert deliver(cluster, []) == []


def test_what_others_write_meanwhile_is_passed_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = cluster.send

    def crowded(topic: str, **record) -> None:
        send(topic, partition=0, key=b"other", value=b"theirs")
        send(topic, **record)

    monkeypatch.setattr(cluster, "send", crowded)
    assert deliver(cluster, [Parcel(ONE, b"k", b"v"), Parcel(ONE, b"k", b"w")]) == [2, 4]


def test_what_can_not_be_read_in_time_is_told(cluster: MemoryCluster) -> None:
    life = cluster.transactions("open")
    life.begin()
    life.produce("t", partitions=[1], keys=[None], values=[b"x"])
    with pytest.raises(ClusterError, match="1 of 2 records were sent but can't be read after 0 s"):
        deliver(cluster, [Parcel(ONE, None, b"v"), Parcel(TWO, None, b"w")], limit_s=0.0)
