"""Makes hostile records for internal topics: real records with one change, and bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import fastavro

from errata.processors.tasks.task import Task
from errata.processors.wire import dead_letter, replay
from errata.processors.wire import report as reports
from errata.processors.wire.replay import BlockError, unpack
from errata.schemas.avro import RevisionCodec
from errata.topics import names
from errata.topics.cluster import TopicPartition
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import ids
from tests.faults.hostile_values import any_bytes, damaged

if TYPE_CHECKING:
    from tests.faults.hostile_network import AtWork

LONGS = [
    -(2**63),
    -(2**62) - 1,
    -(2**62),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2**31 - 1,
    2**31,
    2**53,
    2**61,
    2**62 - 1,
    2**62,
    2**62 + 1,
    2**63 - 1,
]
TEXTS = ["", ".", "trades", "ingest.trades.0", "ingest.trades.7", "a.0", "a.-1", "a.99999999999",
         "sweep.trades.0", "sweep.none.0", "x" * 10_000, "\0", "\u202e", "a.\u0661"]  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """A record for an internal topic."""

    place: TopicPartition
    key: bytes | None
    value: bytes | None


class Maker:
    """Makes hostile records from the real ones of a network.

    Args:
        world: The network at work.
        loose: Whether records may be made that could be true.
    """

    def __init__(self, world: AtWork, *, loose: bool) -> None:
        self.world, self.loose, self.dice = world, loose, world.dice
        net = world.plan.network
        deployment = world.plan.deployment
        self.topics = {
            "reports": [names.progress_topic(net)],
            "arc": [deployment.topic(arc) for arc in ("trades", "by_product", "by_desk")],
            "exchange": [deployment.topic("by_desk.exchange")],
            "plan": [names.plan_topic(net)],
            "requests": [deployment.requests(arc) for arc in ("trades", "by_desk")],
            "replies": [deployment.replies(s) for s in world.plan.topology.scopes.values()],
            "schemas": [SCHEMAS_TOPIC],
            "dead letters": [names.dead_letters_topic(net)],
        }
        self.arcs = {deployment.topic(name): name for name in world.plan.topology.arcs}
        self.make: dict[str, Callable[[TopicPartition], Hostile | None]] = {
            "reports": self._report,
            "arc": self._revision,
            "exchange": self._revision,
            "plan": self._plan_record,
            "requests": self._request,
            "replies": self._reply,
            "schemas": self._schema,
            "dead letters": self._dead_letter,
        }
        self.real: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = {}
        self.asked = set[tuple[Any, ...]]()

    def look(self) -> None:
        """Read the real records; call it before the first hostile one."""
        cluster = self.world.cluster
        for topic in (topic for topics in self.topics.values() for topic in topics):
            for partition in range(cluster.partitions(topic)):
                place = TopicPartition(topic, partition)
                reader = cluster.reader({place: 0})
                self.real[place] = [
                    pair
                    for records in reader.poll()
                    for pair in zip(records.keys, records.values, strict=True)
                ][-100:]
                reader.close()
        for topic in self.topics["requests"]:
            for partition in range(cluster.partitions(topic)):
                for _, value in self.real[TopicPartition(topic, partition)]:
                    told = self._read(value, fastavro.parse_schema(replay.REQUEST_SCHEMA))
                    if told is not None:
                        self.asked.add(self._identity(told))

    def records(self, kind: str, count: int) -> list[Hostile]:
        """Return hostile records of a kind."""
        made: list[Hostile] = []
        tries = 0
        while len(made) < count and tries < 20 * count:
            tries += 1
            topic = self.dice.choice(self.topics[kind])
            place = TopicPartition(topic, self.dice.randrange(self.world.cluster.partitions(topic)))
            record = self.make[kind](place)
            if record is not None:
                made.append(record)
        return made

    # ---------------------------------------------------------------- pieces

    def _template(self, place: TopicPartition) -> tuple[bytes | None, bytes]:
        known = [pair for pair in self.real.get(place, ()) if pair[1] is not None]
        if not known:
            return None, b""
        key, value = self.dice.choice(known)
        assert value is not None
        return key, value

    def _key(self, key: bytes | None) -> bytes | None:
        dice = self.dice
        if dice.random() < 0.85:
            return key
        return dice.choice(
            [None, b"", b"\xff\xfe", any_bytes(dice), b"x" * 100_000, damaged(key or b"k", dice)]
        )

    def _bytes(self, place: TopicPartition) -> tuple[bytes | None, bytes | None]:
        """Return bytes that are no record, or a real one that is damaged."""
        dice = self.dice
        key, value = self._template(place)
        what = dice.random()
        if what < 0.1:
            return self._key(key), None
        if what < 0.3:
            return self._key(key), any_bytes(dice)
        if what < 0.32:
            return self._key(key), dice.randbytes(200_000)
        return self._key(key), damaged(value, dice)

    def _changed(self, content: Any) -> Any:
        """Return decoded content with one value of another content, somewhere inside."""
        dice = self.dice
        if isinstance(content, dict) and content:
            name = dice.choice([*content])
            return {**content, name: self._changed(content[name])}
        if isinstance(content, list):
            if not content or dice.random() < 0.3:
                return content * dice.choice([0, 2, 50]) if content else content
            at = dice.randrange(len(content))
            return [*content[:at], self._changed(content[at]), *content[at + 1 :]]
        if isinstance(content, bool) or content is None:
            return content
        if isinstance(content, int):
            return dice.choice([*LONGS, content + 1, content - 1, content + 10**6])
        if isinstance(content, str):
            return dice.choice(TEXTS)
        if isinstance(content, bytes):
            return damaged(content, dice)
        return content

    @staticmethod
    def _read(value: bytes | None, schema: Any) -> dict[str, Any] | None:
        try:
            return dict(fastavro.schemaless_reader(io.BytesIO((value or b"")[5:]), schema, None))
        except Exception:  # noqa: BLE001 it is no such record
            return None

    @staticmethod
    def _written(head: bytes, content: dict[str, Any], schema: Any) -> bytes | None:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, schema, content)
        except Exception:  # noqa: BLE001 a value that the type can't hold
            return None
        return head + out.getvalue()

    def _mutated(self, place: TopicPartition, schema: Any) -> Hostile:
        """Return a real record with one field changed, or bytes."""
        key, value = self._template(place)
        content = self._read(value, schema) if self.dice.random() < 0.6 else None
        if content is not None:
            written = self._written(value[:5], self._changed(content), schema)
            if written is not None:
                return Hostile(place, self._key(key), written)
        return Hostile(place, *self._bytes(place))

    # ---------------------------------------------------------------- the kinds

    def _report(self, place: TopicPartition) -> Hostile | None:
        made = self._mutated(place, reports.SCHEMA)
        return made if self.loose or self._is_false(made) else None

    def _is_false(self, made: Hostile) -> bool:
        """Whether a report can't be true, by what the page of the protocol says."""
        told = self._read(made.value, fastavro.parse_schema(reports.SCHEMA))
        if made.key is None or made.value is None or told is None:
            return True
        if told["task"].encode() != made.key:
            return True
        world, plan = self.world, self.world.plan
        tasks = {t.name: t for p in world.processes for t in p.tasks if isinstance(t, Task)}
        task = tasks.get(told["task"])
        if told["task"].startswith("sweep.") or told["plan"] not in ("", plan.fingerprint):
            return False
        if task is None:
            return True
        last = task.report
        if told["attempt"] < last.attempt - 1:
            return True
        validator = task.view.validator
        for name, places in (
            ("ends", validator.written(task.name)),
            ("resume", validator.read(task.name)),
        ):
            for each in told[name]:
                if TopicPartition(each["topic"], each["partition"]) not in places:
                    return True
        return any(each["offset"] > 2**40 for each in told["ends"])

    def _revision(self, place: TopicPartition) -> Hostile | None:
        arc = self.world.plan.topology.arcs[self.arcs[place.topic]]
        made = self._mutated(place, RevisionCodec(arc.name, arc.fields).schema)
        if self.loose or made.value is None:
            # a tombstone of a real key, or what a report may cover, is no damage to a reader
            return made if self.loose else None
        told = self._read(made.value, RevisionCodec(arc.name, arc.fields).schema)
        if told is None or self.dice.random() < 0.1:
            return made if told is None else None
        is_covered = told["attempt"] < 10**6 and told["epoch"] < 10**9
        known = {t.name for p in self.world.processes for t in p.tasks}
        return None if told["task"] in known and is_covered else made

    def _plan_record(self, place: TopicPartition) -> Hostile | None:
        dice = self.dice
        key, value = self._template(place)
        key = dice.choice(
            [
                key,
                b"plan",
                b"switch",
                b"settle",
                b"end.trades",
                b"end.none",
                b"watermark.trades",
                b"end.\xff",
                b"watermark.",
            ]
        )
        texts = [
            value,
            b"{}",
            b"null",
            b"[]",
            b"{",
            b'{"0": 1e400}',
            b'{"x": 5}',
            b'{"0": -5}',
            b'{"-1": 5}',
            b'{"0": 99999999999999999999}',
            b'{"0": true}',
            b'{"\xd9\xa1": 4611686018427387904}',
            b'{"time_ms": 1}',
            b'{"time_ms": ' + b"9" * 5_000 + b', "resent": 0}',
            b'{"time_ms": 9223372036854775807, "resent": -1}',
            b'{"time_ms": 1.5, "resent": 0}',
            b'{"number": -1}',
            b'{"number": 4611686018427387904}',
            b'{"version": 0}',
            b'{"version": "1"}',
            b'{"version": 99999999999999999999999}',
            b"[" * 100_000,
            b'{"a":' * 5_000,
            b'{"plan": {"network": "hostile"}}',
        ]
        told = dice.choice(texts)
        with suppress(ValueError):
            told = (
                json.dumps(self._changed(json.loads(value))).encode()
                if dice.random() < 0.4
                else told
            )
        if dice.random() < 0.3:
            told = damaged(told, dice)
        if not self.loose:
            with suppress(Exception):
                parsed = json.loads(told)
                if key in (b"end.trades", b"watermark.trades") and isinstance(parsed, dict):
                    numbers = [n for n in parsed.values() if isinstance(n, int)]
                    if min(numbers, default=2**62) < 2**60:
                        return None
                number = parsed.get("number") if key == b"settle" else None
                if isinstance(number, int) and 0 <= number < 2**31:
                    return None
                if key == b"plan" and "sources" in str(parsed):
                    return None
        return Hostile(place, key, told)

    def _request(self, place: TopicPartition) -> Hostile | None:
        made = self._mutated(place, replay.REQUEST_SCHEMA)
        told = self._read(made.value, fastavro.parse_schema(replay.REQUEST_SCHEMA))
        return (
            made if self.loose or told is None or self._identity(told) not in self.asked else None
        )

    def _reply(self, place: TopicPartition) -> Hostile | None:
        made = self._mutated(place, replay.REPLY_SCHEMA)
        told = self._read(made.value, fastavro.parse_schema(replay.REPLY_SCHEMA))
        if self.loose or told is None:
            return made
        try:
            unpack(told["tuples"])
        except BlockError:
            return made
        return made if self._identity(told) not in self.asked else None

    def _identity(self, told: dict[str, Any]) -> tuple[Any, ...]:
        return told["task"], told["attempt"], told["epoch"], told["number"]

    def _schema(self, place: TopicPartition) -> Hostile | None:
        dice = self.dice
        key, value = self._template(place)
        told: Any = None
        with suppress(ValueError):
            told = json.loads(value)
        what = dice.random()
        if what < 0.4 or told is None:
            return Hostile(place, *self._bytes(place))
        if what < 0.6:
            told["schema"] = self._changed(told["schema"])
            with suppress(RecursionError):
                told["id"] = next(ids(told["schema"]))
        elif what < 0.9:
            told = self._changed(told)
        else:
            deep = b"[" * 5_000 + b"]" * 5_000
            texts = [b'{"id": 5, "subject": "s", "schema": {"a": %s}}' % deep, b'{"id": 1e400}',
                     b'{"id": %s, "subject": "s", "schema": {}}' % (b"9" * 5_000),
                     b'{"id": true, "subject": "s", "schema": {}}',
                     b'{"id": 5, "subject": "\\ud800", "schema": {"type": "\\ud800"}}']  # fmt: skip
            return Hostile(place, self._key(key), dice.choice(texts))
        return Hostile(place, self._key(key), json.dumps(told).encode())

    def _dead_letter(self, place: TopicPartition) -> Hostile | None:
        letter = dead_letter.DeadLetter(
            "ingest.trades.0", 1, 1, "undecodable", "x", "feed", 0, 1, 5, b"k", b"v"
        )
        value = b"\0\0\0\0\1" + dead_letter.encode(letter)
        if not self.loose:
            value = b"\0\0\0\0\1" + dead_letter.encode(replace(letter, task="nobody.0"))
        self.real[place] = [(None, value)]
        made = self._mutated(place, dead_letter.SCHEMA)
        told = self._read(made.value, fastavro.parse_schema(dead_letter.SCHEMA))
        known = {t.name for p in self.world.processes for t in p.tasks}
        return made if self.loose or told is None or told["task"] not in known else None
