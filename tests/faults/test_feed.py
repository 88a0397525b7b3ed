"""The feed of the campaign goes on when its producer has ended, and sends each line once."""

from random import Random

import pytest
from confluent_kafka import KafkaException

from errata.processors.arcs.arc_topic import read_to_end
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.settings import TopicSpec
from tests.faults.feed import Feed, fills


class Ended:
    """A producer that has ended: what it was given last may have been written, or not."""

    def __init__(self, producer, written):
        self.producer, self.written = producer, written

    def produce(self, *line, **more):
        if self.written:
            self.written -= 1
            self.producer.produce(*line)

    def poll(self, seconds):
        self.producer.flush()
        raise KafkaException("out of order")


@pytest.mark.kafka
@pytest.mark.parametrize("written", [0, 3, 1000])
def test_each_line_is_sent_once_although_the_producer_ends(broker, cluster, written):
    tapes = fills(Random(1))
    for tape in tapes:
        tape.topic = f"feed.{written}.{tape.topic}"
        create_topics(broker.settings, [TopicSpec(tape.topic, tape.partitions)])
    feed = Feed(broker.settings, tapes)
    for _ in range(2):
        feed._due_s = 0
        feed.advance()
    feed.flush(limit_s=30)
    feed._producer = Ended(feed._producer, written)
    for _ in range(2):
        feed._due_s = 0
        feed._lives, lives = lambda: True, feed._lives
        feed.advance()
        feed._lives = lives
    feed.flush(limit_s=30)
    counts = {
        place: sum(map(len, filter(None, read_to_end(cluster, TopicPartition(*place), 0))))
        for place in feed.sent
    }
    assert counts == feed.sent
    assert sum(counts.values()) == feed.count
