"""Reports: what a task commits about itself, in the transaction of the work it speaks of.

A report is Timely's progress statement (consumed, produced and internal changes *together*), made
cumulative: the newest one of a task is enough, so that the progress topic can be compacted by task.
``docs/protocol.md#4-reports`` gives every field.

The records are of version 1. The event time up to which results are final, and the slabs in which a
job on Spark keeps state, are fields of a `Report`; on the wire they are entries of the map
``counts``, under the keys `WIRE_FIELDS`, as they always were. Only this module knows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import fastavro

from errata.processors.wire import avro_body
from errata.processors.wire.avro_body import BodyError
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

INTERVAL_MS = 50
"""An epoch's number is about the clock, in ms since 1970, in units of this."""
NEVER = -(2**62)
"""A watermark before every event time."""
FOREVER = 2**62
"""A watermark beyond every event time: the source has ended."""
IDLE = FOREVER + 1
"""In place of a watermark: the partition does not hold the others back."""

WIRE_FIELDS = SETTLED, HELD_FROM, HELD_TO = "settled_ms", "held_from", "held_to"
"""Keys of the map ``counts`` that are no running totals: `Report.settled_ms`, `Report.held`."""

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
    """What the watermark of some sources had been before older pairs were forgotten.

    Args:
        sources: The sources that it is combined of.
        epoch: As of this epoch.
        watermark: It.
    """

    sources: tuple[str, ...]
    epoch: int
    watermark: int


@dataclass(frozen=True)
class Report:
    """What one task has done so far.

    Args:
        task: ``<scope>.<partition>``, or ``sweep.<arc>.<partition>`` for a sweeper.
        attempt: The life that wrote it.
        plan: Fingerprint of the plan it works by.
        done: Last epoch processed; -1 before the first.
        watermark: Ingest: newest event time taken, less lateness; others: wm(done).
        committed: By attempt, the last epoch that it committed: what readers believe.
        ends: By output partition, own last record's offset + 1 and that record's epoch.
        resume: By input partition, the oldest record not yet processed.
        watermarks: Ingest: (epoch, watermark) pairs until every reader has passed them.
        floors: Ingest: what readers' watermarks were when older pairs were forgotten.
        closes: When the first of its open windows ends; until the watermark has come there, it
            gives nothing without input. `FOREVER` if none is open.
        counts: Running totals, exactly once like everything in a report.
        settled_ms: No tuple of an event time before this can be revised any more.
        held: A job on Spark, task 0: the first and the last slab in which states may be kept; None
            if none is.
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
    closes: int = FOREVER
    counts: Mapping[str, int] = field(default_factory=dict)
    settled_ms: int = NEVER
    held: tuple[int, int] | None = None

    def covers(self, attempt: int, epoch: int) -> bool:
        """Whether a record of this task exists (``docs/protocol.md#5-what-a-reader-believes``)."""
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
    """Return the fields that travel in the map ``counts``."""
    state = {} if report.settled_ms == NEVER else {SETTLED: report.settled_ms}
    if report.held is not None:
        state[HELD_FROM], state[HELD_TO] = report.held
    return state


def decode(body: bytes, schema: Any = None) -> Report:
    """Read a report's Avro body, written with `schema` or, if None, with today's.

    Raises:
        ReportError: If it is none.
    """
    try:
        plain = avro_body.read(body, _PARSED, written_by=schema)
    except BodyError as error:
        raise ReportError(f"not a report: {error}") from error
    counts: dict[str, int] = plain["counts"]
    settled_ms = counts.pop(SETTLED, NEVER)
    held = counts.pop(HELD_FROM, None), counts.pop(HELD_TO, None)
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
        closes=plain["closes"],
        counts=counts,
        settled_ms=settled_ms,
        held=None if held[0] is None or held[1] is None else (held[0], held[1]),
    )
