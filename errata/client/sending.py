"""Sends a revision to a user's topic by hand.

It is encoded in the envelope and format of its source, delivered, and awaited until it can be
read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import polars as pl

from errata.client import protobuf_records
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.topology import Source
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields
from errata.topics.cluster import Cluster, ClusterError, TopicPartition
from errata.topics.registry import Registry

Record = tuple[bytes, bytes | None]
_LIMIT_S = 30.0


class NoSuchRecordError(ErrataError):
    """A source's envelope has no record for the revision."""


def declared(source: Source) -> Fields:
    """Return the declared fields of a source, which its records have."""
    return {name: source.arc.fields[name] for name in source.arc.visible}


def source_records(
    source: Source, revision: pl.DataFrame, *, registry: Registry, time_ms: int
) -> list[Record]:
    """Return keys and values of the records for which a source's ingest emits revisions.

    The key is the identity, of Protobuf records in JSON. There is one record for each; after a
    delete of Debezium there is a tombstone, too. Avro schemas are registered under the topic's
    subjects, as producers do; Protobuf needs one that is registered.

    Args:
        source: The source whose topic the records are for.
        revision: Revisions of the source's arc; mostly one.
        registry: The registry for Avro schemas.
        time_ms: The time of a Debezium record.

    Raises:
        NoSuchRecordError: If one is a delete, and the envelope is ``append``.
    """
    envelope, form = source.envelope, source.format
    if envelope == "append":
        if (revision["op"] == frames.DELETE).any():
            raise NoSuchRecordError(
                f"source {source.arc.name!r} has the envelope 'append', which has no records that "
                "delete; give the tuple other values with a replace, or declare another envelope"
            )
        envelope = "upsert"
    if form == "csv":
        records = source_records(
            replace(source, format="json"), revision, registry=registry, time_ms=time_ms
        )
        return [(key, value and _csv_line(json.loads(value, **_DIGITS))) for key, value in records]
    if form == "protobuf":
        as_json = replace(source, format="json", envelope=envelope)
        keyed = source_records(as_json, revision, registry=registry, time_ms=time_ms)
        made = iter(
            protobuf_records.values(
                source, revision, envelope=envelope, registry=registry, time_ms=time_ms
            )
        )
        return [(key, None if value is None else next(made)) for key, value in keyed]
    outgoing = Outgoing(source.arc, source.topic, envelope, form, registry)
    keys, values = outgoing.encode(revision, epoch=0, time_ms=time_ms)
    return list(zip(keys, values, strict=True))


class _Digits(str):
    """A number with its digits as JSON has them."""


_DIGITS: dict[str, Any] = {"parse_int": _Digits, "parse_float": _Digits}


def _csv_line(content: dict[str, Any]) -> bytes:
    return ",".join(map(_cell, content.values())).encode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return json.dumps(value)


class Parcel(NamedTuple):
    """A record for one partition of a topic."""

    place: TopicPartition
    key: bytes | None
    value: bytes | None


def deliver(cluster: Cluster, records: Sequence[Parcel], *, limit_s: float = _LIMIT_S) -> list[int]:
    """Send records outside any transaction, and return the offset of each once it can be read.

    Args:
        cluster: The cluster to send to.
        records: The records, in the order that each partition is to have them.
        limit_s: How long they may take to become readable.

    Raises:
        ClusterError: If they can't be sent, or are not readable in time.
    """
    if not records:
        return []
    starts = {record.place: cluster.end(record.place) for record in records}
    for record in records:
        cluster.send(
            record.place.topic, partition=record.place.partition, key=record.key, value=record.value
        )
    cluster.flush()  # raises if a record is refused
    indexes: dict[Parcel, list[int]] = {}
    for number, record in enumerate(records):
        indexes.setdefault(record, []).append(number)
    left = Counter(records)
    offsets = [-1] * len(records)
    reader, deadline = cluster.reader(starts), monotonic() + limit_s
    try:
        while left.total():
            for batch in reader.poll(timeout_s=0.1):
                rows = zip(batch.offsets, batch.keys, batch.values, strict=True)
                for offset, key, value in rows:
                    record = Parcel(batch.source, key, value)
                    if left[record]:  # another producer's equal record counts too
                        offsets[indexes[record][-left[record]]] = offset
                        left[record] -= 1
            if left.total() and monotonic() > deadline:
                place = next(record.place for record in left if left[record])
                raise ClusterError(
                    f"{left.total()} of {len(records)} records were sent but can't be read after "
                    f"{limit_s:g} s, the first in partition {place.partition} of topic "
                    f"'{place.topic}': a transaction of another producer may be open there"
                )
    finally:
        reader.close()
    return offsets
