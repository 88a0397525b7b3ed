"""A topic that is deleted under a running network stays away, and who needs it says so and ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from errata.run.worker import Worker
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import MissingTopicError
from errata.topics.settings import TopicSpec
from tests.errata.network_file import write_network

pytestmark = pytest.mark.kafka

LIMIT_S = 90.0


@pytest.fixture(scope="module")
def obliging() -> Iterator[EmbeddedBroker]:
    """A broker that makes any topic that somebody asks for, as Kafka's default is."""
    with EmbeddedBroker(overrides={"auto.create.topics.enable": "true"}) as broker:
        yield broker


class Deleting:
    """Lets a process work for a while, then deletes a topic and goes on feeding."""

    def __init__(self, broker: EmbeddedBroker, feed: str, topic: str) -> None:
        silent = {"log_level": 0}  # it may outlive the broker
        self.admin, self.topic, self.feed = AdminClient(broker.settings | silent), topic, feed
        self.producer = Producer(broker.settings | silent | {"allow.auto.create.topics": False})
        self.began, self.fed, self.gone = monotonic(), 0, False

    def __call__(self) -> bool:
        now = monotonic() - self.began
        if now > self.fed * 0.5:
            self.fed += 1
            price = {"key": f"k{self.fed}", "at": self.fed * 60_000, "symbol": "A", "price": 1}
            self.producer.produce(self.feed, json.dumps({"op": "insert", "after": price}).encode())
            self.producer.poll(0)
        if now > 3.0 and not self.gone:
            self.admin.delete_topics([self.topic])[self.topic].result(20)
            self.gone = True
        return now > LIMIT_S


@pytest.mark.parametrize("kind", ["-prices", ".prices", ".progress", ".counts"])
def test_a_topic_deleted_under_a_process_ends_it_and_is_not_made_again(
    obliging: EmbeddedBroker, tmp_path: Path, kind: str
) -> None:
    name = f"deleted{kind.strip('.-')}{'feed' if kind[0] == '-' else ''}"
    write_network(tmp_path, name=name)
    create_topics(obliging.settings, [TopicSpec(f"{name}-prices", 1)])
    topic = f"{name}{kind}"
    network, place = load(str(tmp_path / "tape.py")), Place(obliging.settings, tmp_path)
    worker = Worker(network, place)
    worker.add_scope("ingest.prices")
    worker.add_scope("prices", sweep_beside=True)
    deleting = Deleting(obliging, f"{name}-prices", topic)
    with pytest.raises(MissingTopicError, match=topic):
        worker.run(deleting)
    assert deleting.gone
    assert topic not in AdminClient(obliging.settings).list_topics(timeout=20).topics
    with pytest.raises(MissingTopicError, match=topic):
        Worker(network, place).add_scope("ingest.prices" if kind != ".counts" else "prices")
    assert topic not in AdminClient(obliging.settings).list_topics(timeout=20).topics
