"""A Kafka cluster as tasks and sweepers use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import monotonic, sleep
from typing import Any
from weakref import WeakSet, ref

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec

from errata.topics.admin import require, require_still
from errata.topics.client import REACH_S, Connection, Settings
from errata.topics.cluster import (
    LARGEST,
    ClusterError,
    MissingTopicError,
    MovingLeaderError,
    SilentClusterError,
    TopicPartition,
    check_sizes,
)
from errata.topics.groups import SESSION_MS, Membership, committed_note
from errata.topics.kafka_reader import KafkaReader
from errata.topics.refused import DELETE, DESCRIBE, READ, TOPIC, WRITE, Right
from errata.topics.transactions import TIMEOUT_S, KafkaTransactions

LONGEST_S = 5.0
"""How long a request for offsets may take before the partition's leader is looked up again."""

ELECTED_S = 30.0
"""How long a partition may have no leader: the loss of a broker is noticed after ten seconds."""

LEARNS_S = 3.0
"""A client that does not know the leader of a partition for so long is replaced."""

SENT_S = 30.0
"""How long a sent record may take to be acknowledged, for the same reason."""

LOOK_S = 0.02
"""How often `rest` looks for what has arrived: several clients can't be waited for at once."""

_SENDING = {
    "linger.ms": 1,
    "retry.backoff.ms": 20,
    "message.max.bytes": LARGEST,
    "request.timeout.ms": 10_000,  # recover from a cut link sooner than after half a minute
    "socket.timeout.ms": 10_000,
}


class KafkaCluster:
    """A `Cluster` on Kafka.

    Args:
        settings: librdkafka settings; Errata overrides those that its guarantees depend on.
        reach_s: Time limit for the first answer, and for one after all brokers were lost.

    Raises:
        ClusterError: If no broker answers in time, or the cluster refuses this client.

    Example: ``KafkaCluster({"bootstrap.servers": "localhost:9092"})``
    """

    def __init__(self, settings: Settings, *, reach_s: float = REACH_S) -> None:
        self._connection = Connection(settings, reach_s=reach_s)
        self._limit = self._connection.setting("message.max.bytes", LARGEST)
        self._sender: Any = None
        self._lost = ""
        self._readers = WeakSet[KafkaReader]()
        self._others = WeakSet[KafkaTransactions | Membership]()
        self._waker: Callable[[], KafkaReader | None] = lambda: None

    def __repr__(self) -> str:
        """Return the servers, without anything that may be secret."""
        return f"KafkaCluster({self._connection!r})"

    def reader(self, positions: Mapping[TopicPartition, int]) -> KafkaReader:
        """Return a reader of these partitions, from these offsets.

        Raises:
            ClusterError: If there is no such topic or partition.
        """
        for topic in {source.topic for source in positions}:
            count = self._count(topic, Right(READ, TOPIC, topic))
            highest = max(s.partition for s in positions if s.topic == topic)
            if highest >= count:
                raise ClusterError(
                    f"topic '{topic}' has {count} partitions, but partition {highest} is to be "
                    "read; the plan and the topic differ: see `errata explain`"
                )
        reader = KafkaReader(self._connection, positions)
        self._readers.add(reader)
        return reader

    def rest(self, limit_s: float) -> bool:
        """Wait until something arrives for a reader; return whether it did within `limit_s`.

        What had arrived by an earlier call, and was not read since, does not end the wait. It waits
        on the reader that ended the last one, and looks at the others every `LOOK_S`.
        """
        until_s, left_s = monotonic() + limit_s, limit_s
        while left_s > 0:
            # All of them, each time: what has arrived by now must not end the next wait.
            if arrived := [reader for reader in self._readers if reader.has_more()]:
                self._waker = ref(arrived[-1])
                return True
            waker = self._waker()
            if waker is None or not waker.wait(min(left_s, LOOK_S)):
                sleep(min(left_s, LOOK_S))
            left_s = until_s - monotonic()
        return False

    def transactions(self, transactional_id: str) -> KafkaTransactions:
        """Return a new attempt's transactional producer; older ones are fenced."""
        self._connection.check()
        transactions = KafkaTransactions(self._connection, transactional_id)
        self._others.add(transactions)
        return transactions

    def send(self, topic: str, *, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Send one record outside any transaction; it is sent within milliseconds.

        Raises:
            RecordTooLargeError: If the record is too large.
            ClusterError: If this one, or one sent before, can't be delivered.
        """
        self._connection.check()
        check_sizes(topic, keys=[key], values=[value], limit=self._limit)
        if self._sender is None:
            self._sender = self._connection.client(
                Producer,
                _SENDING,
                {"enable.idempotence": True, "allow.auto.create.topics": False},
            )
        deadline = monotonic() + TIMEOUT_S
        while True:
            try:
                self._sender.poll(0)
                if self._lost:
                    lost, self._lost = self._lost, ""
                    raise ClusterError(f"a record was not delivered: {lost}; send it again")
                self._sender.produce(topic, value, key, partition, self._on_delivery)
                return
            except BufferError:
                if monotonic() > deadline:
                    raise ClusterError(
                        f"records for topic '{topic}' were not sent within {TIMEOUT_S:g} s; "
                        "see the broker's log"
                    ) from None
                self._sender.poll(0.05)
            except KafkaException as error:
                self._sender = None  # an idempotent producer does not survive a fatal error
                right = Right(WRITE, TOPIC, topic)
                raise self._connection.failure(f"topic '{topic}'", error, right=right) from None

    def flush(self) -> None:
        """Wait until all records sent outside transactions can be read.

        Raises:
            ClusterError: If a record can't be delivered.
        """
        left = self._sender.flush(SENT_S) if self._sender is not None else 0
        self._connection.check()
        lost, self._lost = self._lost, ""
        if left or lost:
            raise ClusterError(f"a record was not delivered: {lost or 'no answer'}; send it again")

    def require(self, rights: Collection[Right]) -> None:
        """Check that this client has these rights to topics; see `admin.require`."""
        require(self._connection, rights)

    def require_still(self, rights: Collection[Right]) -> None:
        """Check that the rights are still held and the topics exist; see `admin.require_still`."""
        require_still(self._connection, rights)

    def membership(
        self,
        group: str,
        topic: str,
        give_up: Callable[[Collection[int]], None],
        *,
        session_ms: int = SESSION_MS,
    ) -> Membership:
        """Return a member of a group that shares a topic's partitions; see `Membership`."""
        member = Membership(
            self._connection, group=group, topic=topic, give_up=give_up, session_ms=session_ms
        )
        self._others.add(member)
        return member

    def end(self, source: TopicPartition) -> int:
        """Return the log's end: the offset after the last record, committed or not."""
        return self.ends([source])[source]

    def ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of several logs in one request; see `end`."""
        return self._offsets(sources, OffsetSpec.latest())

    def stable_ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return up to where several logs can be read: to their first open transaction."""
        return self._offsets(sources, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def offset_at(self, source: TopicPartition, time_ms: int) -> int:
        """Return the offset of the first record of this time or later; the log's end if none."""
        offset = self._offsets([source], OffsetSpec.for_timestamp(time_ms))[source]
        return offset if offset >= 0 else self.end(source)

    def _offsets(
        self,
        sources: Collection[TopicPartition],
        which: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        left, offsets = dict.fromkeys(sources), dict[TopicPartition, int]()
        deadline, limit_s, renewed_s = monotonic() + ELECTED_S, 1.0, monotonic()
        while left:  # a request stays with the leader that it was sent to, which may be gone
            self._connection.check()
            positions = {source: Position(*source) for source in left}
            answers = self._connection.admin.list_offsets(
                dict.fromkeys(positions.values(), which),
                isolation_level=isolation,
                request_timeout=limit_s,
            )
            failure: ClusterError | None = None
            for source, position in positions.items():
                try:
                    offsets[source] = self._offset(source, answers[position], limit_s)
                    del left[source]
                except (MovingLeaderError, SilentClusterError) as error:
                    failure = error
            if failure is None:
                break
            if monotonic() > deadline:
                raise self._leaderless(left) or failure
            if monotonic() > renewed_s + LEARNS_S:
                self._connection.renew()
                renewed_s = monotonic()
            limit_s = min(2 * limit_s, LONGEST_S)
            sleep(0.05)
        return offsets

    def _leaderless(self, sources: Collection[TopicPartition]) -> MovingLeaderError | None:
        """Return an error that names those of some partitions that have no leader; None if none."""
        places = self._connection.leaderless(sources, limit_s=LONGEST_S)
        if not places:
            return None
        moving = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        text = str(self._connection.failure(" and ".join(map(_label, places)), moving))
        return MovingLeaderError(text, places)

    def _offset(self, source: TopicPartition, answer: Any, limit_s: float) -> int:
        right = Right(READ, TOPIC, source.topic)  # whoever requests offsets is about to read
        try:
            listed = self._connection.wait_for(_label(source), answer, right=right, limit_s=limit_s)
        except MissingTopicError:
            # A broker that has just started knows no topics yet; a topic may also be hidden from
            # this client.
            if source.partition >= self._count(source.topic, right):
                raise
            starting = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            raise self._connection.failure(_label(source), starting) from None
        if listed.offset == OFFSET_INVALID:  # librdkafka 2.16 signals a timeout this way
            raise self._connection.failure(_label(source), TimeoutError())
        return int(listed.offset)

    def delete_before(self, source: TopicPartition, offset: int) -> None:
        """Delete a partition's records before an offset; needs the right Delete on the topic."""
        self._connection.check()
        position = Position(source.topic, source.partition, offset)
        answer = self._connection.admin.delete_records([position])[position]
        right = Right(DELETE, TOPIC, source.topic)
        self._connection.wait_for(_label(source), answer, right=right, limit_s=LONGEST_S)

    def note(self, group: str, places: Collection[TopicPartition]) -> str:
        """Return the note of a group's last committed positions of these partitions; "" if none.

        Raises:
            ClusterError: If the group's coordinator does not answer, or refuses.
        """
        return committed_note(self._connection, group, places)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has.

        Raises:
            MissingTopicError: If there is no such topic.
        """
        return self._count(topic, Right(DESCRIBE, TOPIC, topic))

    def _count(self, topic: str, right: Right) -> int:
        self._connection.check()
        answers = self._connection.admin.describe_topics(TopicCollection([topic]))
        description = self._connection.wait_for(f"topic '{topic}'", answers[topic], right=right)
        return len(description.partitions)

    def close(self) -> None:
        """Deliver the records that were sent and close all connections; safe to call twice.

        Those of its readers, transactions and memberships too: left to the garbage collector, the
        threads of each would look for the brokers until then.
        """
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.flush(TIMEOUT_S)
        for user in [*self._readers, *self._others]:
            user.close()
        self._connection.close()

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._connection.on_lost(message.topic(), error)
            self._lost = f"topic '{message.topic()}': {self._connection.clean(error)}"


def _label(source: TopicPartition) -> str:
    return f"partition {source.partition} of topic '{source.topic}'"
