"""A producer whose newer one has started says so, in whichever call it learns of it."""

from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from errata.topics.admin import create_topics
from errata.topics.cluster import FencedError
from errata.topics.settings import TopicSpec, passing

TOPIC = "fenced.while.busy"


@pytest.mark.kafka
def test_an_attempt_that_was_fenced_while_it_produced_is_fenced_and_not_in_doubt(broker, cluster):
    create_topics(broker.settings, [TopicSpec(TOPIC, 1, passing())])

    def write(transactions):
        transactions.produce(TOPIC, partitions=[0], keys=[None], values=[b"x"])

    old = cluster.transactions("zombie")
    old.begin()
    write(old)
    old.flush()
    new = cluster.transactions("zombie")

    def go_on():
        while True:  # the client learns of it in the background
            with suppress(BufferError):
                old._producer.produce(TOPIC, b"x", partition=0)

    with pytest.raises(KafkaException) as known:
        go_on()
    assert known.value.args[0].code() == KafkaError._FATAL  # which does not say why
    with pytest.raises(FencedError, match="'zombie'"):
        write(old)
    old.close()
    new.close()
