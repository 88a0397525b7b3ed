"""Plays the tape of real trades into the user's topic, as a user's own producer would.

A revision is an Avro record of op, before and after. The tape also corrects trades from before its
start: no reader can apply those revisions, and they must not stop anything.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import merge
from importlib.resources import files
from typing import Any
from zlib import crc32

import fastavro
from confluent_kafka import KafkaError, Message, Producer

from errata.run.exit_status import reported
from errata.settings.place import Place, connect, overlaid, read_settings
from errata.topics.admin import create_topics
from errata.topics.cluster import LOGGER
from errata.topics.registry_server import registry
from errata.topics.secrets import clean
from errata.topics.settings import TopicSpec

TOPIC = "swaps.credits"
WATCHABLE_S, FAST_S = 75.0, 12.0
"""How long playing takes, in s: at a watchable pace, and with ``--fast``."""

_LONGEST_GAP = timedelta(minutes=6)
_OPS = {"NEWT": "insert", "MODI": "replace", "CORR": "replace", "TERM": "delete", "EROR": "delete"}


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_TRADE: dict[str, Any] = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "key", "type": "string"},
        {"name": "at", "type": _MILLIS},
        {"name": "product", "type": "string"},
        {"name": "underlier", "type": ["null", "string"]},
        {"name": "currency", "type": ["null", "string"]},
        {"name": "notional", "type": ["null", _decimal(18, 2)]},
        {"name": "price", "type": ["null", _decimal(18, 9)]},
        {"name": "premium", "type": ["null", _decimal(18, 5)]},
        {"name": "index_factor", "type": ["null", _decimal(10, 9)]},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "TapeLine",
    "namespace": "swaps",
    "fields": [
        {
            "name": "op",
            "type": {"type": "enum", "name": "Op", "symbols": ["insert", "delete", "replace"]},
        },
        {"name": "before", "type": ["null", _TRADE], "default": None},
        {"name": "after", "type": ["null", "Trade"], "default": None},
    ],
}

Line = dict[str, str]


def tape() -> Iterator[Line]:
    """Yield the lines of the tape in the order of arrival, including unlinked ones."""
    folder = files("errata.demo") / "data"

    def lines(name: str) -> Iterator[Line]:
        text = gzip.decompress((folder / name).read_bytes()).decode()
        return csv.DictReader(io.StringIO(text))

    parts = lines("credits.csv.gz"), lines("credits_unlinked.csv.gz")
    return merge(*parts, key=lambda line: int(line["source_id"]))


def revision(line: Line) -> dict[str, Any]:
    """Return a line of the tape as a revision.

    An unlinked line has no original; a delete repeats the trade.

    Example:
        >>> ops = [revision(line)["op"] for line in tape()]
        >>> len(ops), ops[:3]
        (1361, ['delete', 'insert', 'insert'])
    """
    op, trade = _OPS[line["action"]], _trade(line)
    original = _trade(line, old="old_") if "key" in line else None
    before = {"insert": None, "replace": original, "delete": original or trade}[op]
    return {"op": op, "before": before, "after": None if op == "delete" else trade}


def _trade(line: Line, old: str = "") -> dict[str, Any]:
    def number(name: str) -> Decimal | None:
        text = line[old + name]
        return Decimal(text) if text else None

    return {
        "key": line.get("key") or line["original_id"],
        "at": datetime.fromisoformat(line[old + "event_time"] or line["event_time"]),
        "product": line["product"],
        "underlier": line["underlier"] or None,
        "currency": line["currency"] or None,
        **{name: number(name) for name in ("notional", "price", "premium", "index_factor")},
    }


def moments(lines: list[Line], *, seconds: float) -> list[float]:
    """Return when to play each line, in seconds from the start; the last is at `seconds`.

    Times are proportional to the report times, which never decrease here; long gaps are shortened.

    Example:
        >>> clock = ["09:00", "09:02", "09:01", "12:00"]
        >>> lines = [{"report_time": f"2026-07-15T{t}:00Z"} for t in clock]
        >>> moments(lines, seconds=5.0)
        [0.0, 1.25, 1.25, 5.0]
    """
    report_times = [datetime.fromisoformat(line["report_time"]) for line in lines]
    rising = list(itertools.accumulate(report_times, max))
    gaps = [min(b - a, _LONGEST_GAP) for a, b in itertools.pairwise(rising)]
    reached = list(itertools.accumulate(gaps, initial=timedelta(0)))
    return [seconds * (at / reached[-1]) for at in reached]


def play(place: Place, *, seconds: float, topic: str = TOPIC) -> int:
    """Send the tape to an existing topic; return its number of records.

    Args:
        place: The cluster, and the schema registry if there is one.
        seconds: How long playing takes at least.
        topic: The topic; all records of a trade go to one partition.
    """
    cluster = connect(place)
    schemas = registry(cluster, place.registry)
    schema_id = schemas.register(f"{topic}-value", SCHEMA)
    partitions = cluster.partitions(topic)
    cluster.close()
    head, parsed = b"\0" + schema_id.to_bytes(4, "big"), fastavro.parse_schema(SCHEMA)
    producer = Producer(
        {
            "linger.ms": 2,
            "delivery.timeout.ms": 60_000,
            **place.kafka,
            "enable.idempotence": True,
            "logger": LOGGER,
        }
    )
    lines = list(tape())
    start = time.monotonic()
    for line, moment in zip(lines, moments(lines, seconds=seconds), strict=True):
        while (wait := start + moment - time.monotonic()) > 0:
            producer.poll(wait)
        out = io.BytesIO(head)
        out.seek(len(head))
        record = revision(line)
        fastavro.schemaless_writer(out, parsed, record, strict=True)
        key = (record["after"] or record["before"])["key"].encode()
        producer.produce(
            topic,
            out.getvalue(),
            key,
            partition=crc32(key) % partitions,
            on_delivery=_delivered,
        )
    producer.flush()
    return len(lines)


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        fault = f"the ticker lost a record of topic '{message.topic()}': {clean(error.str())}"
        raise SystemExit(fault)


def main() -> None:
    """Play the tape, in a separate process."""
    parser = argparse.ArgumentParser(description="Play the swap trade tape into a Kafka topic.")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="by default that of the settings")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--seconds", type=float, default=WATCHABLE_S, help="how long it takes")
    parser.add_argument(
        "--make-topic",
        type=int,
        metavar="PARTITIONS",
        help="play nothing; create the topic unless it exists",
    )
    arguments = parser.parse_args()
    with reported("errata.demo.ticker"):
        override = {"kafka.bootstrap.servers": arguments.bootstrap} if arguments.bootstrap else {}
        place = read_settings(overlaid(os.environ, override))
        if arguments.make_topic:
            connect(place).close()
            create_topics(place.kafka, [TopicSpec(arguments.topic, arguments.make_topic)])
            return
        print(play(place, seconds=arguments.seconds, topic=arguments.topic), "records played")


if __name__ == "__main__":
    main()
