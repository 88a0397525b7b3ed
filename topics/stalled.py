"""Finds consumers that no longer fetch, though there are records.

When a partition has had no leader for a moment, librdkafka 2.16 may never learn of the next one
(its issue 5430). A consumer then waits for ever: no call of it fails. So a reader asks now and then
where its partitions end, by another client, and without waiting for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec

from errata.topics.client import Connection

STALLED_S = 5.0
"""How often a reader asks; after this long behind an end, with nothing arriving, it is stalled."""

LONGEST_S = 300.0
"""How often at most, if new consumers do not help: the brokers may throttle this client."""

Positions = Mapping[tuple[str, int], int]


class StallWatch:
    """Tells when a reader's consumer has stalled.

    Args:
        connection: The cluster.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked: Any = None
        self._answers: dict[tuple[str, int], Future[Any]] = {}
        self._behind: dict[tuple[str, int], int] = {}
        self._was_empty = False
        self._pause_s = STALLED_S
        self._due_s = monotonic() + STALLED_S

    def has_stalled(self, positions: Positions, *, is_empty: bool) -> bool:
        """Return whether the consumer is to be replaced; call it after each poll.

        Args:
            positions: Up to where the reader has read each partition.
            is_empty: Whether the poll has returned nothing.
        """
        self._was_empty |= is_empty
        if self._answers:
            if all(answer.done() for answer in self._answers.values()):
                self._note(positions)
            return False
        if monotonic() < self._due_s:
            return False
        stays = any(positions[source] == at for source, at in self._behind.items())
        stalled = stays and self._was_empty
        self._pause_s = min(2 * self._pause_s, LONGEST_S) if stalled else STALLED_S
        self._ask(positions)
        return stalled

    def _ask(self, positions: Positions) -> None:
        """Ask up to where committed records can be read."""
        places = {source: Position(*source) for source in positions}
        self._asked = self._connection.admin
        answers = self._asked.list_offsets(
            dict.fromkeys(places.values(), OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=STALLED_S,
        )
        self._answers = {source: answers[place] for source, place in places.items()}

    def _note(self, positions: Positions) -> None:
        """Note which partitions are not read to their ends."""
        answers, self._answers, self._behind = self._answers, {}, {}
        for source, answer in answers.items():
            try:
                if positions[source] < answer.result().offset:
                    self._behind[source] = positions[source]
            except KafkaException:
                if self._connection.admin is self._asked:
                    self._connection.renew()  # it may have the same fault
        self._was_empty = False
        self._due_s = monotonic() + self._pause_s
