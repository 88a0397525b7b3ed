"""Clients that never learn who leads a partition, after it had no leader: they are given up."""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from errata.topics import kafka, transactions
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec

PLACE = TopicPartition("t", 0)
LIMIT_S = 13.0


@pytest.mark.kafka
def test_a_client_of_requests_that_does_not_learn_of_the_leader_is_replaced(broker, monkeypatch):
    create_topics(broker.settings, [TopicSpec("stuck", 1)])
    cluster = KafkaCluster(broker.settings)
    stuck, offset = cluster._connection.admin, cluster._offset
    moving = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def answered(source, answer, limit_s):
        if cluster._connection.admin is stuck:
            raise cluster._connection.failure("a partition", moving)
        return offset(source, answer, limit_s)

    monkeypatch.setattr(cluster, "_offset", answered)
    monkeypatch.setattr(kafka, "LEARNS_S", 0.1)
    assert cluster.end(TopicPartition("stuck", 0)) == 0
    cluster.close()


class Clock:
    """A producer that acknowledges records as its list says, and the time that it takes."""

    def __init__(self, left: list[int]) -> None:
        self.left, self.now = iter(left), 100.0

    def flush(self, limit_s: float) -> int:
        self.now += limit_s
        return next(self.left, 1)


@pytest.fixture
def waited(monkeypatch) -> Iterator:
    """Return how long a producer is waited for."""

    def wait(left: list[int], leaderless: list[list[TopicPartition] | None]) -> float:
        clock, told = Clock(left), iter(leaderless)
        life = object.__new__(transactions.KafkaTransactions)
        life._producer, life._awaited = clock, Counter([PLACE])
        life._connection = SimpleNamespace(leaderless=lambda places, limit_s: next(told, []))
        monkeypatch.setattr(transactions, "monotonic", lambda: clock.now)
        assert life._flush_slowly(3, limit_s=LIMIT_S) == next(iter([*left[-1:], 1]))
        return clock.now - 100.0

    return wait


def test_a_producer_that_sends_nothing_although_it_could_is_given_up(waited):
    assert waited([], []) == 1 + transactions.STUCK_S  # in the first second there is an answer


def test_a_producer_is_waited_for_while_records_are_acknowledged(waited):
    assert waited([3, 2, 2, 2, 1, 1, 0], []) == 7.0


@pytest.mark.parametrize("answer", [[PLACE], None], ids=["no leader", "no answer"])
def test_a_producer_is_waited_for_while_the_brokers_can_not_take_records(waited, answer):
    assert waited([], [answer] * 100) == LIMIT_S
