"""A seeded producer: inserts, corrections, deletes, late tuples, duplicates and bad records.

It remembers what it has sent: a plain dict of what is live, and the places of the bad records.
"""

import json
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from time import monotonic, time_ns
from typing import Any

from confluent_kafka import KafkaException, Producer

from errata.processors.arcs.arc_topic import read_to_end
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster

Tuple = dict[str, Any]
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""

BASE_MS = 1_790_000_000_000
"""Event time at which every tape starts."""
TICK_S, TICK_MS = 0.05, 100
"""How often lines are sent, and by how much event time goes on then: twice as fast as the clock."""
LATE_MS = 1_500
"""An insert is out of order by up to this, which is less than the lateness of the sources."""
AHEAD_MS = 10 * 86_400_000
"""A tuple so far after the clock is refused."""


AWAY_S = 120.0
"""How long brokers may be away when the feed has to be taken up again."""


class FeedError(Exception):
    """The feed could not send a record: the campaign itself has failed."""


@dataclass(frozen=True)
class Line:
    """A record to send.

    Args:
        partition: The partition of the topic.
        key: The record's key.
        value: Its value.
        is_bad: Whether it has to become a dead letter.
    """

    partition: int
    key: bytes | None
    value: bytes | None
    is_bad: bool = False


@dataclass
class Tape:
    """The tuples of one source.

    Args:
        source: Its name.
        topic: Its topic.
        partitions: The topic's number of partitions.
        identity: The field that names a tuple: text that ends with a number.
        envelope: ``native``, ``upsert`` or ``debezium``.
        fresh: Draws the fields of a tuple but its identity and event time.
        chance: Draws what happens.
        lines_a_tick: How many lines a tick has.
    """

    source: str
    topic: str
    partitions: int
    identity: str
    envelope: str
    fresh: Callable[[random.Random], Tuple]
    chance: random.Random
    lines_a_tick: int = 6
    live: dict[str, Tuple] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    """By partition: the largest event time that was sent, of tuples that are accepted."""
    count: int = 0

    def tick(self, number: int) -> Iterator[Line]:
        """Yield the lines of a tick."""
        for _ in range(self.lines_a_tick):
            yield self.line(BASE_MS + number * TICK_MS)

    def line(self, now_ms: int) -> Line:
        """Return one line of any kind."""
        chance, kind = self.chance, self.chance.random()
        if self.live and kind < 0.4:
            name = chance.choice(list(self.live))
            return self._revision(name, kind, now_ms)
        if kind < 0.42:
            return self.bad(now_ms)
        late_ms = chance.randrange(LATE_MS)
        if kind < 0.5:  # it comes behind the watermark
            late_ms = chance.randrange(max(1, now_ms - BASE_MS))
        self.count += 1
        after = {self.identity: f"{self.count}", "at": now_ms - late_ms, **self.fresh(chance)}
        return self.put(after)

    def _revision(self, name: str, kind: float, now_ms: int) -> Line:
        old = self.live[name]
        if kind < 0.1:
            del self.live[name]
            return self._line(name, None, old)
        if kind < 0.15:
            return self._line(name, old, None)  # once more
        new = old | self.fresh(self.chance)
        if kind < 0.2:
            new["at"] = BASE_MS + self.chance.randrange(max(1, now_ms - BASE_MS))
        return self.put(new)

    def put(self, after: Tuple) -> Line:
        """Return the line of a tuple that is new, or has new values."""
        name = after[self.identity]
        before, self.live[name] = self.live.get(name), after
        place = self._partition(name)
        self.newest_ms[place] = max(self.newest_ms.get(place, 0), after["at"])
        return self._line(name, after, before)

    def bad(self, now_ms: int) -> Line:
        """Return a line that is refused."""
        kind = self.chance.randrange(4)
        name = f"{self.chance.randrange(10_000_000, 20_000_000)}"
        after = {self.identity: name, "at": now_ms, **self.fresh(self.chance)}
        if kind == 0:
            line = self._line(name, after, None)
            return Line(line.partition, line.key, (line.value or b"")[:-3], is_bad=True)
        if kind == 1:
            value = self._line(name, after | {"at": "yesterday"}, None).value
        elif kind == 2 or self.envelope == "upsert":
            value = self._line(name, after | {"at": time_ns() // 1_000_000 + AHEAD_MS}, None).value
        else:
            value = self._line(name, None, after).value  # a delete of what never was
        return Line(self._partition(name), self._key(name), value, is_bad=True)

    def _line(self, name: str, after: Tuple | None, before: Tuple | None) -> Line:
        partition, key = self._partition(name), self._key(name)
        if self.envelope == "upsert":
            return Line(partition, key, None if after is None else _json(after))
        kinds = ("insert", "delete", "replace")
        if self.envelope == "debezium":
            kinds = ("c", "d", "u")
        kind = kinds[0 if before is None else 1 if after is None else 2]
        value = {"op": kind, "before": before, "after": after}
        return Line(partition, key, _json({k: v for k, v in value.items() if v is not None}))

    def _partition(self, name: str) -> int:
        return int(name) % self.partitions

    def _key(self, name: str) -> bytes:
        return _json({self.identity: name})


class Rates(Tape):
    """The tape of rates: few tuples, of which the orders' are revised now and then.

    A tuple a partition, which no order names, follows the clock, so that the watermark does.
    """

    SYMBOLS = 16

    def tick(self, number: int) -> Iterator[Line]:
        """Yield the lines of a tick."""
        now_ms, chance = BASE_MS + number * TICK_MS, self.chance
        if number % 5 == 0:
            for partition in range(self.partitions):
                name = str(1000 * self.partitions + partition)
                yield self.put({self.identity: name, "at": now_ms, **self.fresh(chance)})
        if number % 100 == 7:
            yield self.bad(now_ms)
        if number < self.SYMBOLS or number % 40 == 3:
            name = str(number if number < self.SYMBOLS else chance.randrange(self.SYMBOLS))
            known = self.live.get(name)
            at_ms = known["at"] if known and chance.random() < 0.8 else now_ms
            if known and chance.random() < 0.1:
                del self.live[name]
                yield self._line(name, None, known)
                yield Line(self._partition(name), self._key(name), None)  # Debezium's tombstone
            else:
                yield self.put({self.identity: name, "at": at_ms, **self.fresh(chance)})


def fills(chance: random.Random) -> list[Tape]:
    """Return the tape of the network `networks.fills`."""

    def fresh(chance: random.Random) -> Tuple:
        return {
            "product": chance.choice("abcde"),
            "n": chance.randrange(-2, 20),
            "price": Decimal(chance.randrange(100, 100_00)) / 100,
        }

    return [Tape("fills", "fills.in", 2, "key", "native", fresh, chance)]


def orders(chance: random.Random) -> list[Tape]:
    """Return the tapes of the network `networks.orders`."""

    def order(chance: random.Random) -> Tuple:
        return {
            "symbol": str(chance.randrange(Rates.SYMBOLS + 1)),
            "client": chance.choice("uvwxyz"),
            "quantity": chance.randrange(50),
        }

    def rate(chance: random.Random) -> Tuple:
        return {"rate": Decimal(chance.randrange(1000, 50_000)) / 10_000}

    return [
        Tape("ordered", "orders.in", 3, "id", "upsert", order, chance, lines_a_tick=2),
        Rates("rates", "rates.in", 2, "symbol", "debezium", rate, chance),
    ]


class Feed:
    """Sends the lines of some tapes as time goes by.

    Args:
        settings: Client settings of the brokers.
        tapes: The tapes.
    """

    def __init__(self, settings: Mapping[str, str | int], tapes: list[Tape]) -> None:
        self.tapes, self._settings = tapes, dict(settings)
        self._ticks, self._due_s = 0, monotonic()
        self._unknown: dict[tuple[str, int], deque[Line]] = defaultdict(deque)
        """By topic and partition: the lines that are not acknowledged yet, in order."""
        self._dead_since_s = 0.0
        self.sent: dict[tuple[str, int], int] = {}
        """By topic and partition: the offset after the last record that was acknowledged."""
        self.bad: set[Place] = set()
        self.count = 0
        self.is_on = True
        self.burst = 1
        """How many ticks are sent together: the network rests in between."""
        self._producer: Producer | None = self._connected()

    def _connected(self) -> Producer:
        own = {
            "enable.idempotence": True,  # each record once, in order, whatever brokers do
            "delivery.timeout.ms": 600_000,
            "linger.ms": 5,
            "retry.backoff.ms": 50,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
        return Producer(self._settings | own)

    def advance(self) -> None:
        """Send what is due by now."""
        now = monotonic()
        if not self._lives() or now < self._due_s:
            return
        self._due_s = max(self._due_s + TICK_S * self.burst, now - TICK_S)
        for _ in range(self.burst):
            for tape in self.tapes:
                for line in tape.tick(self._ticks):
                    self.count += 1
                    self._unknown[tape.topic, line.partition].append(line)
                    self._send(tape.topic, line)
            self._ticks += 1

    def flush(self, *, limit_s: float) -> None:
        """Wait until all records are acknowledged.

        Raises:
            FeedError: If one is not.
        """
        deadline = monotonic() + limit_s
        while left := sum(map(len, self._unknown.values())):
            if monotonic() > deadline:
                raise FeedError(f"{left} records of the feed are not acknowledged ({limit_s:g} s)")
            if self._lives():
                self._producer.flush(0.5)

    def _lives(self) -> bool:
        """Return whether records can be sent; replace a producer that has ended.

        After a broker was killed an idempotent producer may end, since it can't know whether its
        last records were written ("out of order sequence number").

        Raises:
            FeedError: If the brokers are away for too long.
        """
        try:
            if self._producer is not None:
                self._producer.poll(0)
                return True
        except (KafkaException, SystemError):  # fatal errors come out of callbacks
            self._producer, self._dead_since_s = None, monotonic()
        try:
            self._look_up()
        except ErrataError as error:
            if monotonic() > self._dead_since_s + AWAY_S:
                raise FeedError(f"the feed finds no brokers: {error}") from error
            return False
        self._producer = self._connected()
        for (topic, _), lines in self._unknown.items():
            for line in lines:
                self._send(topic, line)
        return True

    def _look_up(self) -> None:
        """Find the unknown lines that were written; after them nothing comes of an ended producer.

        Raises:
            ErrataError: If the brokers are away.
        """
        cluster = KafkaCluster(self._settings, reach_s=1.0)
        try:
            for (topic, partition), lines in self._unknown.items():
                place = TopicPartition(topic, partition)
                start = self.sent.get((topic, partition), 0)
                for records in filter(None, read_to_end(cluster, place, start)):
                    for offset, value in zip(records.offsets, records.values, strict=True):
                        assert value == lines[0].value, f"{place} {offset} is not of the feed"
                        self._acknowledged(topic, partition, offset)
        finally:
            cluster.close()

    def _send(self, topic: str, line: Line) -> None:
        producer = self._producer
        assert producer is not None

        def delivered(error: Any, message: Any) -> None:
            if error is None and producer is self._producer:
                self._acknowledged(topic, message.partition(), message.offset())

        producer.produce(topic, line.value, line.key, line.partition, on_delivery=delivered)

    def _acknowledged(self, topic: str, partition: int, offset: int) -> None:
        line = self._unknown[topic, partition].popleft()
        self.sent[topic, partition] = offset + 1
        if line.is_bad:
            self.bad.add((topic, partition, offset))


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()
