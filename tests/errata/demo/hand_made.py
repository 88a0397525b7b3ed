"""Topics of the demo's network, made by hand: what a right network would have written."""

import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

from errata.demo import ticker
from errata.demo.audit.records import ENDED, SCHEMAS, Entry, Logs
from errata.demo.audit.verdict import DOWNSTREAM, SOURCE, TOPICS, TRADES, UPSTREAM
from errata.processors.wire import dead_letter, report
from errata.schemas.avro import revision_schema
from errata.schemas.fields import FieldType
from errata.topics.registry import ids

NOON = datetime(2026, 7, 15, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TOTAL = {
    "product": "string",
    "currency": "string",
    "window_start": "timestamp-millis",
    "window_end": "timestamp-millis",
    "traded": "decimal(38,11)?",
    "average": "decimal(38,15)?",
    "trades": "long",
    "largest": "decimal(38,11)?",
}
TRADE = {
    "key": "string",
    "at": "timestamp-millis",
    "product": "string",
    "underlier": "string?",
    "currency": "string",
    "notional": "decimal(18,2)",
    "price": "decimal(18,9)?",
    "premium": "decimal(18,5)?",
    "index_factor": "decimal(10,9)?",
}
LETTERS, PROGRESS = "tape.dead-letters", "tape.progress"


def arc_schema(name: str, fields: dict[str, str]) -> dict[str, Any]:
    return revision_schema(name, {n: FieldType.parse(t) for n, t in fields.items()})


SCHEMA_OF = {
    SOURCE: ticker.SCHEMA,
    PROGRESS: report.SCHEMA,
    LETTERS: dead_letter.SCHEMA,
    TRADES: arc_schema("trades", TRADE),
    UPSTREAM: arc_schema("totals_upstream", TOTAL),
    DOWNSTREAM: arc_schema("totals_downstream", TOTAL),
}
IDS = {topic: next(ids(schema)) for topic, schema in SCHEMA_OF.items()}


def trade(key: str, at: datetime, notional: str, factor: str | None = None) -> dict[str, Any]:
    number = None if factor is None else Decimal(factor)
    return dict.fromkeys(TRADE) | {
        "key": key,
        "at": at,
        "product": "CDS",
        "currency": "USD",
        "notional": Decimal(notional),
        "index_factor": number,
    }


def total(start: datetime, traded: str, average: str, trades: int, largest: str) -> dict[str, Any]:
    return {
        "product": "CDS",
        "currency": "USD",
        "window_start": start,
        "window_end": start + 30 * MINUTE,
        "traded": Decimal(traded),
        "average": Decimal(average),
        "trades": trades,
        "largest": Decimal(largest),
    }


def revision(
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    *,
    task: str,
    epoch: int,
    attempt: int = 1,
) -> dict[str, Any]:
    op = "insert" if before is None else "delete" if after is None else "replace"
    meta = {"task": task, "attempt": attempt, "epoch": epoch}
    return {"op": op, "before": before, "after": after, **meta}


def newest(task: str, *, committed: dict[int, int], watermark: int = ENDED) -> dict[str, Any]:
    pairs = [{"attempt": a, "epoch": e} for a, e in committed.items()]
    lists: dict[str, Any] = {"ends": [], "resume": [], "watermarks": [], "counts": {}}
    me = {"task": task, "attempt": max(committed), "plan": "", "watermark": watermark}
    return {**me, "done": max(committed.values()), "committed": pairs, **lists}


@dataclass
class HandMade:
    """Records by topic, each with its partition; key and value are encoded when asked for."""

    records: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)

    def add(self, topic: str, partition: int, *records: dict[str, Any]) -> None:
        self.records.setdefault(topic, []).extend((partition, record) for record in records)

    def both(self, partition: int, *told: tuple[Any, Any, int]) -> None:
        for topic in (UPSTREAM, DOWNSTREAM):
            task = f"{topic.rpartition('_')[2]}.{partition}"
            for before, after, epoch in told:
                self.add(topic, partition, revision(before, after, task=task, epoch=epoch))

    def logs(self) -> Logs:
        logs: Logs = {topic: [] for topic in (SCHEMAS, *TOPICS)}
        for offset, (topic, schema) in enumerate(SCHEMA_OF.items()):
            told = {"id": IDS[topic], "subject": f"{topic}-value", "schema": schema}
            logs[SCHEMAS].append(Entry(0, offset, topic.encode(), json.dumps(told).encode()))
        for topic, records in self.records.items():
            offsets: dict[int, int] = {}
            for partition, record in records:
                offset = offsets.get(partition, 0)
                offsets[partition] = offset + 1
                key = None if topic == LETTERS else b"key"
                logs[topic].append(Entry(partition, offset, key, encode(topic, record)))
        return logs


def encode(topic: str, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA_OF[topic]), record)
    return b"\0" + IDS[topic].to_bytes(4, "big") + out.getvalue()


FIRST = total(NOON, "30", "15", 2, "20")
REVISED = total(NOON, "28", "14", 2, "18")
EARLIER = total(NOON - 20 * MINUTE, "10", "10", 1, "10")


def right() -> HandMade:
    """Two trades of noon; one is corrected to 0.9 of itself, one unknown one is deleted."""
    made = HandMade()
    a, b = trade("a", NOON, "10"), trade("b", NOON + 15 * MINUTE, "20")
    c = trade("b", NOON + 15 * MINUTE, "20", "0.9")
    lost = {"op": "delete", "before": trade("x", NOON, "1"), "after": None}
    made.add(SOURCE, 0, {"op": "insert", "before": None, "after": a}, lost)
    made.add(
        SOURCE,
        1,
        {"op": "insert", "before": None, "after": b},
        {"op": "replace", "before": b, "after": c},
    )
    made.add(LETTERS, 0, letter(0, 1, lost))
    made.add(TRADES, 2, revision(None, a, task="ingest.trades.0", epoch=1))
    made.add(TRADES, 2, revision(None, b, task="ingest.trades.1", epoch=1))
    made.add(TRADES, 2, revision(b, c, task="ingest.trades.1", epoch=5))
    made.both(2, (None, EARLIER, 2), (None, FIRST, 3), (FIRST, REVISED, 5))
    for scope in ("ingest.trades", "upstream", "downstream"):
        for partition in range(4):
            made.add(PROGRESS, 0, newest(f"{scope}.{partition}", committed={1: 9}))
    return made


def letter(partition: int, offset: int, record: dict[str, Any], **other: Any) -> dict[str, Any]:
    where = {"topic": SOURCE, "partition": partition, "offset": offset, "time_ms": 0}
    told = {"task": "ingest.trades.0", "attempt": 1, "epoch": 1, "detail": ""}
    value = encode(SOURCE, record)
    return told | where | {"reason": "unknown identity", "key": None, "value": value} | other
