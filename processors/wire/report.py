"""Reports: the progress that a task commits, in the same transaction as the work.

A report is Timely's progress statement (consumed, produced and internal changes *together*), made
cumulative: the newest one of a task is enough, so that the progress topic can be compacted by task.
``docs/protocol.md#4-reports`` gives every field.

The records are of version 1. Fields of a `Report` that came later, such as the event time up to
which results are final, are on the wire entries of the map ``counts``, under the keys
`WIRE_FIELDS`, so that older readers find them. Only this module knows that.

The other entries are running totals; `CountKey` parses and prints their keys. A total is a task's
own (``read``), one of a box (``totals.revised``), or that of the dead letters of a reason
(``refused.undecodable``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import fastavro

from errata.processors.wire import avro_body
from errata.processors.wire.avro_body import BodyError
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

INTERVAL_MS = 50
"""An epoch's number is about the clock in ms since 1970, divided by this."""
NEVER = -(2**62)
"""A watermark before every event time."""
FOREVER = 2**62
"""A watermark beyond every event time: the source has ended."""
PENDING = FOREVER
"""In `Report.rebuilt`: the task has to write lost records again, and has not done so yet."""
IDLE = FOREVER + 1
"""In place of a watermark: the partition is idle and does not hold the others back."""
COUNTED = 2**61
"""Numbers of attempts and epochs are smaller: no task has counted so far, and each can count on."""
MOST_PAIRS = 5_000
"""At this many unread (epoch, watermark) pairs the watermark waits for its readers."""

FOR_ROOM, FOR_REGISTRY = 1, 2
"""In `Report.waits`: for room on the disk of the process, for an answer of the schema registry."""

NO_REPORT = b""
"""Key of a record without a value in the progress topic: all that it does is end a transaction."""

FOREIGN = "foreign"
"""Key of a running total: records in topics of tasks that no task can have written."""

SETTLES = "settles"
"""Key of a running total: how many runs of `errata settle` a task has carried out."""

SETTLED, REBUILT = "settled_ms", "rebuilt_epoch"
WAITS, TRUSTED, LOWERED, PROCESS = "waits_for", "trusted_ms", "lowered_epoch", "process"
READ_AGAIN, READ_AGAIN_OF = "read_again", "read_again_of"
WIRE_FIELDS = SETTLED, REBUILT, WAITS, TRUSTED, LOWERED, PROCESS, READ_AGAIN, READ_AGAIN_OF
"""Keys of the map ``counts`` that hold fields of a `Report`, not totals."""
_RETIRED = "held_from", "held_to"
"""Keys that were fields of older releases' reports: passed over."""

BOUND = "bound_epoch."
"""So keys of ``counts`` begin that hold a pair of `Report.bound`: the epoch follows."""
_is_bound = re.compile(re.escape(BOUND) + r"-?[0-9]{1,19}").fullmatch

_PLACE = [{"name": "topic", "type": "string"}, {"name": "partition", "type": "int"}]
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Report",
    "namespace": "errata",
    "fields": [
        {"name": "task", "type": "string"},
        {"name": "attempt", "type": "long"},
        {"name": "plan", "type": "string"},
        {"name": "done", "type": "long"},
        {"name": "watermark", "type": "long"},
        {
            "name": "committed",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Committed",
                    "fields": [
                        {"name": "attempt", "type": "long"},
                        {"name": "epoch", "type": "long"},
                    ],
                },
            },
        },
        {
            "name": "ends",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "End",
                    "fields": [
                        *_PLACE,
                        {"name": "offset", "type": "long"},
                        {"name": "epoch", "type": "long"},
                    ],
                },
            },
        },
        {
            "name": "resume",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Position",
                    "fields": [*_PLACE, {"name": "offset", "type": "long"}],
                },
            },
        },
        {
            "name": "watermarks",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Watermark",
                    "fields": [
                        {"name": "epoch", "type": "long"},
                        {"name": "watermark", "type": "long"},
                    ],
                },
            },
        },
        {
            "name": "floors",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Floor",
                    "fields": [
                        {"name": "sources", "type": {"type": "array", "items": "string"}},
                        {"name": "epoch", "type": "long"},
                        {"name": "watermark", "type": "long"},
                    ],
                },
            },
            "default": [],
        },
        {"name": "closes", "type": "long", "default": NEVER},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}
_PARSED = fastavro.parse_schema(SCHEMA)


class Floor(NamedTuple):
    """The watermark of some sources as of an epoch, kept when older pairs are dropped.

    Args:
        sources: The sources whose watermarks it combines.
        epoch: As of this epoch.
        watermark: The combined watermark.
    """

    sources: tuple[str, ...]
    epoch: int
    watermark: int


@dataclass(frozen=True)
class Report:
    """The cumulative progress of one task.

    Args:
        task: ``<scope>.<partition>``, or ``sweep.<arc>.<partition>`` for a sweeper.
        attempt: The attempt that wrote it.
        plan: Fingerprint of the task's plan.
        done: Last processed epoch; -1 before the first.
        watermark: Ingest: newest event time read, less lateness; others: wm(done).
        committed: By attempt, the last epoch that it committed; these epochs are covered.
        ends: By output partition, the offset + 1 and the epoch of the task's last record.
        resume: By input partition, the oldest record not yet processed.
        watermarks: Ingest: (epoch, watermark) pairs that some reader may still need.
        floors: Ingest: readers' watermarks at the time when older pairs were dropped.
        bound: Of a bound source: (epoch, upstream epoch) pairs that some reader may still need: up
            to this epoch the arc holds what it held upstream up to that one.
        closes: Event time at which its first open window ends. Until the watermark reaches it, the
            task emits nothing without input. `FOREVER` if no window is open.
        rebuilt: The last epoch in which it emitted what epochs before had left out, or `PENDING`;
            -1 if there was none. A reader that has not reached it is rebuilt there.
        counts: Running totals, exactly once like everything in a report.
        settled_ms: Tuples of an event time before this can't be revised any more.
        waits: Why it processes nothing: `FOR_ROOM` or `FOR_REGISTRY`; 0 if it does not wait.
        believed: Ingest: its watermark before it ran ahead of the clock; None if it has not.
        lowered: Ingest: the last epoch in which its watermark was put back; -1 if there was none.
        process: Number of the process that claimed the attempt; that of one which began later is
            larger. 0 if it has none.
        again: While it reads topics again, to rebuild what it keeps: how many records it has read,
            and of how many; 0 of these if that is not known. None if it does not.
    """

    task: str
    attempt: int = 0
    plan: str = ""
    done: int = -1
    watermark: int = NEVER
    committed: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    resume: Mapping[TopicPartition, int] = field(default_factory=dict)
    watermarks: tuple[tuple[int, int], ...] = ()
    floors: tuple[Floor, ...] = ()
    bound: tuple[tuple[int, int], ...] = ()
    closes: int = FOREVER
    rebuilt: int = -1
    counts: Mapping[str, int] = field(default_factory=dict)
    settled_ms: int = NEVER
    waits: int = 0
    believed: int | None = None
    lowered: int = -1
    process: int = 0
    again: tuple[int, int] | None = None

    @property
    def trusted_ms(self) -> int:
        """The part of `watermark` that is certain: what is far ahead of the clock may be wrong."""
        return self.watermark if self.believed is None else self.believed

    def covers(self, attempt: int, epoch: int) -> bool:
        """Whether the report covers a record (``docs/protocol.md#5-committed-records``)."""
        return epoch <= self.committed.get(attempt, NEVER)


class ReportError(ErrataError):
    """A record of the progress topic is not a report."""


def encode(report: Report) -> bytes:
    """Return the Avro body of a report."""
    plain = {
        "task": report.task,
        "attempt": report.attempt,
        "plan": report.plan,
        "done": report.done,
        "watermark": report.watermark,
        "committed": [{"attempt": a, "epoch": e} for a, e in report.committed.items()],
        "ends": [
            {"topic": t.topic, "partition": t.partition, "offset": offset, "epoch": epoch}
            for t, (offset, epoch) in report.ends.items()
        ],
        "resume": [
            {"topic": t.topic, "partition": t.partition, "offset": offset}
            for t, offset in report.resume.items()
        ],
        "watermarks": [{"epoch": e, "watermark": w} for e, w in report.watermarks],
        "floors": [floor._asdict() for floor in report.floors],
        "closes": report.closes,
        "counts": {**report.counts, **_state(report)},
    }
    return avro_body.write(plain, _PARSED)


def _state(report: Report) -> dict[str, int]:
    """Return the fields that are written into the map ``counts``."""
    state = {} if report.settled_ms == NEVER else {SETTLED: report.settled_ms}
    if report.rebuilt >= 0:
        state[REBUILT] = report.rebuilt
    if report.waits:
        state[WAITS] = report.waits
    if report.believed is not None:
        state[TRUSTED] = report.believed
    if report.lowered >= 0:
        state[LOWERED] = report.lowered
    if report.process:
        state[PROCESS] = report.process
    if report.again is not None:
        state[READ_AGAIN], state[READ_AGAIN_OF] = report.again
    return state | {f"{BOUND}{epoch}": upstream for epoch, upstream in report.bound}


@dataclass(frozen=True)
class Note:
    """What is committed beside a report, with the offsets of its input.

    Only who commits the task's transactions can write it. So it tells a report whose records the
    brokers have lost from a forged one, which claims records that never were; and it tells that the
    progress topic has lost a report.

    Args:
        seal: SHA-256 of the report.
        deployment: Id of the deployment; "" in notes of version 1, which have the seal alone.
        attempt: The report's attempt.
        done: The last epoch that it has processed.
    """

    seal: str
    deployment: str = ""
    attempt: int = -1
    done: int = -1

    @classmethod
    def of(cls, report: Report, deployment: str) -> Note:
        """Return the note of a report."""
        seal = sha256(encode(report)).hexdigest()
        return cls(seal, deployment, report.attempt, report.done)

    @classmethod
    def parse(cls, text: str) -> Note:
        """Return the note that a text says; an empty one of a text that is none."""
        match text.split(" "):
            case [seal, deployment, attempt, done]:
                try:
                    return cls(seal, deployment, int(attempt), int(done))
                except ValueError:
                    return cls("")
            case [seal]:
                return cls(seal)
        return cls("")

    def __str__(self) -> str:
        """Return it as text."""
        return f"{self.seal} {self.deployment} {self.attempt} {self.done}"

    def is_of(self, report: Report) -> bool:
        """Whether it was committed beside this report."""
        return self.seal == Note.of(report, self.deployment).seal

    def is_newer(self, report: Report, deployment: str) -> bool:
        """Whether it was committed beside a later report of the same deployment."""
        is_later = (self.attempt, self.done) > (report.attempt, report.done)
        return self.deployment == deployment and is_later


def decode(body: bytes, schema: Any = None) -> Report:
    """Read a report's Avro body, written with `schema` or, if None, with the current one.

    Raises:
        ReportError: If the bytes are no report.
    """
    try:
        plain = avro_body.read(body, _PARSED, written_by=schema)
    except BodyError as error:
        raise ReportError(f"not a report: {error}") from error
    counts: dict[str, int] = plain["counts"]
    settled_ms, rebuilt = counts.pop(SETTLED, NEVER), counts.pop(REBUILT, -1)
    waits, lowered = counts.pop(WAITS, 0), counts.pop(LOWERED, -1)
    believed, process = counts.pop(TRUSTED, None), counts.pop(PROCESS, 0)
    again = counts.pop(READ_AGAIN, None), counts.pop(READ_AGAIN_OF, 0)
    for name in _RETIRED:
        counts.pop(name, None)
    bound = tuple(
        sorted((int(k[len(BOUND) :]), counts.pop(k)) for k in filter(_is_bound, [*counts]))
    )
    place = TopicPartition
    return Report(
        task=plain["task"],
        attempt=plain["attempt"],
        plan=plain["plan"],
        done=plain["done"],
        watermark=plain["watermark"],
        committed={c["attempt"]: c["epoch"] for c in plain["committed"]},
        ends={place(e["topic"], e["partition"]): (e["offset"], e["epoch"]) for e in plain["ends"]},
        resume={place(r["topic"], r["partition"]): r["offset"] for r in plain["resume"]},
        watermarks=tuple((w["epoch"], w["watermark"]) for w in plain["watermarks"]),
        floors=tuple(
            Floor(tuple(f["sources"]), f["epoch"], f["watermark"]) for f in plain["floors"]
        ),
        bound=bound,
        closes=plain["closes"],
        rebuilt=rebuilt,
        counts=counts,
        settled_ms=settled_ms,
        waits=waits,
        believed=believed,
        lowered=lowered,
        process=process,
        again=None if again[0] is None else (again[0], again[1]),
    )


_REFUSED = "refused"

DEAD_LETTERS = "dead_letters"
"""The total of all dead letters of a task."""

OF_BOXES = frozenset(
    {
        "judged",
        "passed",
        "closed",
        "revised",
        "requests",
        "shared",
        "replayed",
        "anchor_tuples",
        "fetched",
        "fallbacks",
        "sized",
        "held",
        "sized_again",
        "held_again",
        "chosen",
        "expected",
        "inexact",
        "settled",
        "kept_back",
        _REFUSED,
    }
)
"""Totals of boxes. No reason of a dead letter has one of these names: ``refused.closed`` belongs to
a box that a user named ``refused``.
"""


@dataclass(frozen=True, slots=True)
class CountKey:
    """The key of a running total.

    Args:
        what: What is counted.
        box: The box; "" if the total is the task's own.
        reason: Reason of the counted dead letters; "" for all other totals.

    Example:
        >>> CountKey.parse("totals.revised"), CountKey.parse("refused.event time").reason
        (CountKey(what='revised', box='totals', reason=''), 'event time')
        >>> str(CountKey("read")), str(CountKey.of_reason("event time"))
        ('read', 'refused.event time')
    """

    what: str
    box: str = ""
    reason: str = ""

    @classmethod
    def of_reason(cls, reason: str) -> CountKey:
        """Return the key of the dead letters of a reason."""
        return cls(_REFUSED, reason=reason)

    @classmethod
    def parse(cls, text: str) -> CountKey:
        """Parse a key; every text is one."""
        first, _, rest = text.partition(".")
        if first == _REFUSED and rest and rest not in OF_BOXES:
            return cls.of_reason(rest)
        box, _, what = text.rpartition(".")
        return cls(what, box) if box else cls(text)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.what}.{self.reason}"
        return f"{self.box}.{self.what}" if self.box else self.what
