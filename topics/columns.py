"""Messages of one partition as columns, taken out of them as they come."""

from __future__ import annotations

from confluent_kafka import Message

from errata.topics.cluster import Records, TopicPartition
from errata.topics.times import Times


class Columns:
    """What has come of one partition so far."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.messages: list[Message] = []

    def add(self, messages: list[Message]) -> None:
        """Add messages that follow."""
        self.offsets += map(Message.offset, messages)
        self.keys += map(Message.key, messages)
        self.values += map(Message.value, messages)
        self.messages += messages

    def records(self, source: TopicPartition) -> Records:
        """Return all of them."""
        return Records(source, self.offsets, self.keys, self.values, Times(self.messages))
