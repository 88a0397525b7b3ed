"""What a plain consumer of Kafka finds, that knows nothing of Errata."""

from time import monotonic

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from tests.spark_jobs.at_work import LIMIT_S


def consumed(broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    own = {"group.id": topic, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer(broker.settings | own)
    _, end = consumer.get_watermark_offsets(Assigned(topic, 0), 10)
    consumer.assign([Assigned(topic, 0, 0)])
    found, deadline = [], monotonic() + LIMIT_S
    while consumer.position([Assigned(topic, 0)])[0].offset < end:  # markers come a little late
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.key(), message.value()))
        assert monotonic() < deadline, (consumer.position([Assigned(topic, 0)]), end)
    consumer.close()
    return found
