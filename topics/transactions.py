"""Transactions on a Kafka cluster: the transactional producer of one attempt of a task.

A call that hangs ends its process; the supervisor restarts it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import length_hint
from threading import Timer
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from errata.schemas.errors import ErrataError
from errata.topics.admin import require_still
from errata.topics.client import Connection, weak_callback
from errata.topics.cluster import (
    LARGEST,
    LOGGER,
    DoubtfulCommitError,
    FencedError,
    TopicPartition,
    check_sizes,
)
from errata.topics.refused import CODES, TOPIC, TRANSACTIONAL_ID, WRITE, Right


@contextmanager
def ended_if_hung(call: str, limit_s: float) -> Iterator[None]:
    """End the process, status 75 (EX_TEMPFAIL), if the body takes longer than this.

    For a library call that can't be interrupted in another way; it must release Python's GIL.

    Args:
        call: Name of the call, for the log.
        limit_s: How long it may take.
    """
    timer = Timer(limit_s, _end, (call, limit_s))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(call: str, limit_s: float) -> None:
    logging.getLogger("errata").error(
        "%s did not return within %g s; this process ends, and the next one repeats what is not "
        "committed",
        call,
        limit_s,
    )
    os._exit(os.EX_TEMPFAIL)


TIMEOUT_S = 15.0
"""How long a transaction may be open, and how long each of its steps may take."""

PATIENCE_S = 2.0
"""After this long without an acknowledgement the right to write is checked."""

STUCK_S = 4.0
"""If nothing is acknowledged for this long although all partitions have leaders, the client will
never send it."""

HUNG_S = 20.0
"""A step that takes this long will never return, whatever its timeout."""

SLOW_COMMIT_S = 2.0
"""A slower commit may have been sent twice: no new transaction may follow it."""

_CHUNK, _QUEUE = 10_000, 200_000
_DEFAULTS = {
    "linger.ms": 5,
    "compression.type": "lz4",  # costs less time than the copying that it saves
    "retry.backoff.ms": 20,  # back-to-back transactions with offsets wait this long
    "queue.buffering.max.messages": _QUEUE,
    "queue.buffering.max.kbytes": 1_048_576,
    "transaction.timeout.ms": int(TIMEOUT_S * 1000),
    "message.max.bytes": LARGEST,
    "statistics.interval.ms": 250,  # the disconnect counter is available only here
}
_DISCONNECTED = re.compile(r'"disconnects": *[1-9]')
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_OF_TOPICS = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}


class KafkaTransactions:
    """A `Transactions` on a Kafka cluster.

    librdkafka ends transactions by the old protocol (no KIP-890): a commit that was sent twice
    because a connection broke may reach the broker late and expose half of the next transaction. So
    an attempt that has seen a disconnect or a slow commit refuses to begin another one.
    """

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self._connection = connection
        self._id = transactional_id
        self._right = Right(WRITE, TRANSACTIONAL_ID, transactional_id)
        self._limit = connection.setting("message.max.bytes", LARGEST)
        self._queue_size = connection.setting("queue.buffering.max.messages", _QUEUE)
        self._chunk = min(_CHUNK, self._queue_size // 2)
        self._groups: dict[str, Any] = {}
        self._flushed: dict[TopicPartition, range] = {}
        self._awaited = Counter[TopicPartition]()
        """By partition, how many delivery reports are still to come."""
        self._lost_records = ""
        self._purged = False
        self._suspicion = ""
        self._started_us = math.inf
        self._open = False
        self._producer: Any = connection.client(
            Producer,
            _DEFAULTS,
            {
                "transactional.id": transactional_id,
                "stats_cb": weak_callback(self._on_statistics),
                "allow.auto.create.topics": False,  # a deleted topic stays deleted
            },
        )
        try:
            # A client that looks up its coordinator before it knows a broker retries only after
            # half a second; listing the brokers first takes a few milliseconds.
            self._producer.list_topics(timeout=2 * TIMEOUT_S)
            self._producer.init_transactions(2 * TIMEOUT_S)
        except KafkaException as error:
            connection.check()
            what, right = f"transactional id '{transactional_id}'", self._right
            raise connection.failure(what, error, right=right) from None
        self._started_us = monotonic() * 1e6

    def begin(self) -> None:
        """Open a transaction.

        Raises:
            DoubtfulCommitError: If this attempt has seen a disconnect or a slow commit.
        """
        with self._step("begin"):
            self._producer.poll(0)
            self._connection.check()
            if self._suspicion:
                raise self._doubt(self._suspicion)
            self._producer.begin_transaction()
        self._open = True
        self._flushed.clear()
        self._awaited.clear()

    def produce(
        self,
        topic: str,
        *,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Queue records; blocks while the queue is full.

        Raises:
            RecordTooLargeError: If a record is too large; none is queued then.
            DoubtfulCommitError: If the queue stays full, or the cluster refuses.
            FencedError: If a newer attempt has started.
        """
        check_sizes(topic, keys=keys, values=values, limit=self._limit)
        self._connection.check()
        # The delivery reports of each partition's first and last record give the offsets of this
        # task's own output.
        indexes = range(len(partitions))
        last = dict(zip(partitions, indexes, strict=True))
        first = dict(zip(reversed(partitions), reversed(indexes), strict=True))
        callbacks: list[Any] = [None] * len(partitions)
        for partition, index in last.items():
            ends = {first[partition], index}
            self._awaited[TopicPartition(topic, partition)] += len(ends)
            for end in ends:
                callbacks[end] = self._on_delivery
        with self._step(f"producing to '{topic}'"):
            self._queue(topic, values, keys, partitions, callbacks)
            self._producer.poll(0)

    def flush(self) -> dict[TopicPartition, range]:
        """Wait for all queued records; return per partition the offsets of its own ones."""
        with self._step("flush"):
            left = self._producer.flush(PATIENCE_S)
            if left or self._purged:
                self._require_topics()
                left = self._flush_slowly(left, limit_s=TIMEOUT_S - PATIENCE_S)
        self._connection.check()
        if left or self._lost_records or self._awaited.total():
            self._abort_after_loss()
            raise self._doubt(self._lost_records or f"{left} records are not acknowledged")
        flushed = dict(self._flushed)
        self._flushed.clear()
        self._awaited.clear()
        return flushed

    def _flush_slowly(self, left: int, *, limit_s: float) -> int:
        """Wait until no record is left, or until they will never be sent; return what is left.

        When a partition has had no leader for a moment, librdkafka 2.16 may never learn of the next
        one, and its records wait until they time out (its issue 5430).
        """
        deadline, stuck_since = monotonic() + limit_s, math.inf
        while left and (now := monotonic()) < min(deadline, stuck_since + STUCK_S):
            before, left = left, self._producer.flush(min(1.0, deadline - now))
            unacknowledged = set(+self._awaited)
            if left < before or self._connection.leaderless(unacknowledged, limit_s=1.0) != []:
                stuck_since = math.inf
            else:
                stuck_since = min(stuck_since, now)
        return left

    def offsets(
        self, group: str, positions: Mapping[TopicPartition, int], *, note: str = ""
    ) -> None:
        """Add a group's positions to the transaction, each with a note.

        Skipped once a connection has broken: in librdkafka 2.16 the call ignores its time limit
        (its issue 5456), and never returns after the group's coordinator has left the cluster
        (5511).
        """
        if self._suspicion:
            return
        if group not in self._groups:
            consumer: Any = self._connection.client(Consumer, {}, {"group.id": group})
            self._groups[group] = consumer.consumer_group_metadata()
            consumer.close()
        with self._step("adding offsets"), ended_if_hung("adding offsets", HUNG_S):
            self._producer.send_offsets_to_transaction(
                [Position(*source, offset, note) for source, offset in positions.items()],
                self._groups[group],
                TIMEOUT_S,
            )

    def commit(self) -> None:
        """Commit; return only when the outcome is certain."""
        began = monotonic()
        with self._step("commit"):
            self._producer.commit_transaction(TIMEOUT_S)
        self._open = False
        if monotonic() - began > SLOW_COMMIT_S:
            self._suspicion = f"the last commit took longer than {SLOW_COMMIT_S:g} s"

    def close(self) -> None:
        """Close the connection and abort an open transaction; safe to call twice."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._open:
            try:
                producer.abort_transaction(TIMEOUT_S)
            except KafkaException as error:
                # Fenced or unreachable: the next attempt or the broker's timeout aborts the
                # transaction.
                LOGGER.info("%s: %s", self._id, self._connection.clean(error))

    def _queue(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        partitions: Sequence[int],
        callbacks: Sequence[Any],
    ) -> None:
        done, deadline = 0, monotonic() + TIMEOUT_S
        while done < len(values):
            while len(self._producer) > self._queue_size - self._chunk and monotonic() < deadline:
                self._producer.poll(0.01)
            chunk = slice(done, done + self._chunk)
            rest = iter(values[chunk])
            try:
                deque(
                    map(
                        self._producer.produce,
                        repeat(topic),
                        rest,
                        keys[chunk],
                        partitions[chunk],
                        callbacks[chunk],
                    ),
                    maxlen=0,
                )
                done += self._chunk
                deadline = monotonic() + TIMEOUT_S
            except BufferError:
                if monotonic() > deadline:
                    raise self._doubt("the queue stays full") from None
                # The iterator knows how many remain; the record before them was not accepted.
                done = min(done + self._chunk, len(values)) - length_hint(rest) - 1
                self._producer.poll(0.05)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        source = TopicPartition(message.topic(), message.partition())
        offset = message.offset()
        if error is not None or offset is None or offset < 0:
            reason = self._connection.clean(error) if error else "it has no offset"
            self._lost_records = f"a record for {source.topic}-{source.partition}: {reason}"
            if error:
                self._purged |= error.code() in _PURGED
                self._connection.on_lost(source.topic, error)
        else:
            self._awaited[source] -= 1
            known = self._flushed.get(source, range(offset, offset))
            self._flushed[source] = range(known.start, offset + 1)

    def _on_statistics(self, statistics: str) -> None:
        if not _DISCONNECTED.search(statistics):  # four times a second: parsing takes much longer
            return
        content = json.loads(statistics)
        for broker in content["brokers"].values():
            # Disconnects during the lookup of the coordinator are harmless.
            if broker["disconnects"] and content["ts"] - broker["stateage"] > self._started_us:
                self._suspicion = "a connection broke"

    def _abort_after_loss(self) -> None:
        """Abort; the abort, not the lost records, shows whether a newer attempt fenced this one."""
        self._open = False
        try:
            self._producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._failure("flush", error) from None

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """Translate an error of a client's step into the error it stands for."""
        if self._producer is None:
            raise self._doubt(f"it was closed before {step}")
        try:
            yield
        except KafkaException as error:
            raise self._failure(step, error) from None
        except SystemError as error:
            # A fatal error is raised from within the client's callbacks.
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise self._failure(step, error.__cause__) from None

    def _require_topics(self) -> None:
        topics = dict.fromkeys(place.topic for place in self._awaited)
        require_still(self._connection, [Right(WRITE, TOPIC, topic) for topic in topics])

    def _failure(self, step: str, error: KafkaException) -> ErrataError:
        error = self._cause(error)
        self._connection.check()
        if error.args[0].code() in CODES:
            self._require_topics()
            # The consumer group whose positions are written has the task's name, like its
            # transactions.
            right = None if error.args[0].code() in _OF_TOPICS else self._right
            return self._connection.failure(f"{step} of '{self._id}'", error, right=right)
        if error.args[0].code() in _FENCED:
            return FencedError(
                f"task '{self._id}' was fenced at {step}: a newer attempt has started, or the "
                f"transaction took longer than {TIMEOUT_S:g} s; end this one"
            )
        return self._doubt(f"{step}: {self._connection.clean(error)}")

    def _cause(self, error: KafkaException) -> KafkaException:
        """Return the error that ended the producer, if a step says only that it has ended.

        The client raises it in its callbacks, which may not have run yet.
        """
        if error.args[0].code() != KafkaError._FATAL or self._producer is None:
            return error
        try:
            self._producer.poll(0)
        except KafkaException as cause:
            return cause
        except SystemError as raised:
            if not isinstance(raised.__cause__, KafkaException):
                raise
            return raised.__cause__
        return error

    def _doubt(self, reason: str) -> DoubtfulCommitError:
        return DoubtfulCommitError(
            f"task '{self._id}' does not know the outcome of its transaction ({reason}); start a "
            "new attempt"
        )
