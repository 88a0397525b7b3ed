"""The network's ends in users' topics: the arcs of sources, and sinks.

A source's arc has fields, an identity, an event time and a partitioning. *Originals* are records of
the user's topic as tuples: their bytes, verbatim, and their position. Dead letters hold them, and
so does a rekeyed source's exchange: the task that owns an identity decodes the records again, as if
they all came from one partition. Results go to sinks without hidden fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl

from errata.processors.boxes.forward import Forward
from errata.processors.compile.typed import (
    NAME_RULE,
    Typed,
    bad_name,
    duration,
    fault,
    known,
    positive,
    repartitioned,
)
from errata.processors.declare import declarations as declared
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network
from errata.processors.expressions.expression import Expression, compile_event_time
from errata.processors.plan.arc_name import exchange_of, sink_of
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Source
from errata.schemas.arc import HIDDEN_PREFIX, Arc, usual_shift_ms
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType, physical
from errata.topics import names
from errata.topics.cluster import Records

FORMATS = {
    "append": ("avro", "protobuf", "json", "csv"),
    "upsert": ("avro", "protobuf", "json", "csv"),
    "debezium": ("avro", "protobuf", "json"),
    "native": ("avro", "protobuf", "json"),
    declared.BOUND: ("avro",),
}
"""Formats of sources by envelope."""

SINK_ENVELOPES, SINK_FORMATS = ("native", "debezium", "upsert"), ("avro", "json")

EVENT_TIME = HIDDEN_PREFIX + "event_time"
"""Name of the hidden event time, where it is no declared field."""

TIMESTAMP = FieldType("timestamp-millis")


def type_source(network: Network, box: declared.Source, typed: Typed) -> None:
    """Type a source: add its arc to `typed`, or note its faults."""
    before = len(typed.faults)
    fields = _fields(box, typed)
    formats = FORMATS.get(box.envelope)
    if formats is None:
        actual, remedy = repr(box.envelope), "use one of those"
        fault(typed, box, f"an envelope of {', '.join(FORMATS)}", actual, remedy)
    elif box.format not in formats:
        need = f"a format of {', '.join(formats)} for envelope {box.envelope!r}"
        fault(typed, box, need, repr(box.format), "use one of those")
    identity = tuple(box.identity or ())
    if not identity:
        remedy = 'name the fields that identify a tuple, with identity=["..."]'
        fault(typed, box, "an identity", "none", remedy)
    if known(typed, box, identity, fields, "identity"):
        for name in identity:
            if fields[name].optional or fields[name].kind in ("double", "float"):
                fault(
                    typed,
                    box,
                    "identity fields that are never null and compare exactly",
                    f"{name!r} of type {fields[name]}",
                    "choose other fields, or another type",
                )
    event_time = _event_time(box, typed, fields) if fields else None
    positive(typed, box, box.partitions, "partitions")
    start = _start(box, typed)
    lateness = duration(typed, box, box.lateness, "lateness")
    idle_after = duration(typed, box, box.idle_after, "idle_after")
    max_ahead = duration(typed, box, box.max_ahead, "max_ahead")
    keep = duration(typed, box, box.keep, "keep")
    if box.partition_by is not None:
        known(typed, box, tuple(box.partition_by), fields, "partition_by")
    if box.envelope == declared.BOUND:
        _check_bound(box, typed)
    if len(typed.faults) > before or lateness is None:
        return
    partition_by = box.partition_by
    if partition_by is None:
        partition_by = partition_fields(network, box.name, set(fields), identity=identity)
    at = box.event_time
    if event_time is not None:
        at, fields = EVENT_TIME, {**fields, EVENT_TIME: TIMESTAMP}
    assert at is not None  # else there is a fault
    arc = Arc(
        box.name,
        fields,
        identity,
        at,
        tuple(partition_by),
        event_time_shift_ms=usual_shift_ms(at) if box.envelope == declared.BOUND else 0,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    on_spark = box.place_of_work == declared.SPARK and box.envelope != declared.BOUND
    rekey = box.rekey and not on_spark  # Spark's shuffle is by identity
    if rekey:
        passing = original_arc(box.name)
        typed.arcs[passing.name] = passing
    typed.sources[box.name] = Source(
        arc,
        box.topic,
        box.envelope,
        box.format,
        lateness,
        idle_after,
        box.partitions,
        None if event_time is None else event_time.text,
        rekey,
        start,
        max_ahead,
        on_spark,
    )


def _check_bound(box: declared.Source, typed: Typed) -> None:
    """Check a source that is the arc of another network; what it has is settled there."""
    if names.parse_arc_topic(box.topic) is None:
        remedy = 'name it as "<network>.<arc>"'
        fault(typed, box, "the topic of an arc, for envelope 'arc'", repr(box.topic), remedy)
    settled = {
        "partitions": (box.partitions, None),
        "idle_after": (box.idle_after, None),
        "max_ahead": (box.max_ahead, declared.MAX_AHEAD),
        "rekey": (box.rekey, False),
        "start": (box.start, declared.EARLIEST),
    }
    for name, (actual, default) in settled.items():
        if actual != default:
            need, remedy = f"no {name} for envelope 'arc'", "declare it in the network upstream"
            fault(typed, box, need, repr(actual), remedy)


def _fields(box: declared.Source, typed: Typed) -> dict[str, FieldType]:
    """Return the declared fields; notes faults."""
    if not box.fields:
        remedy = 'declare them, as fields={"name": "type", ...}, or name a schema registry'
        fault(typed, box, "fields", "none", remedy)
    fields: dict[str, FieldType] = {}
    for name, text in (box.fields or {}).items():
        is_hidden_time = box.envelope == declared.BOUND and name == box.event_time
        if bad_name(name) and not is_hidden_time:
            fault(typed, box, NAME_RULE + " for a field", repr(name), "rename the field")
        try:
            fields[name] = FieldType.parse(text)
        except ErrataError as error:
            fault(typed, box, f"a type for field {name!r}", error, "declare one of those")
            fields[name] = FieldType("string", optional=False)
    return fields


def _event_time(
    box: declared.Source, typed: Typed, fields: dict[str, FieldType]
) -> Expression | None:
    """Return the expression of the event time; None if it is a field of the right type."""
    if box.event_time is None:
        remedy = 'name the timestamp field that says when a tuple happened, as event_time="at"'
        fault(typed, box, "an event time", "none", remedy)
        return None
    kind = fields.get(box.event_time)
    if kind is not None and kind.required == TIMESTAMP:
        return None
    try:
        return compile_event_time(box.event_time, fields)
    except ErrataError as error:
        remedy = f"name a timestamp field, or an expression that gives one, of {', '.join(fields)}"
        fault(typed, box, "an event time", error, remedy)
        return None


def _start(box: declared.Source, typed: Typed) -> str | int:
    """Return where a first run begins: earliest, latest, or ms."""
    start = box.start
    if start in (declared.EARLIEST, declared.LATEST) or type(start) is int:
        return start
    try:
        at = datetime.fromisoformat(str(start))
    except ValueError:
        remedy = 'write start="2026-07-15T09:30:00Z"'
        need = "a start of earliest, latest, or a time"
        fault(typed, box, need, repr(start), remedy)
        return declared.EARLIEST
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def partition_fields(
    network: Network, source: str, fields: set[str], *, identity: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the fields to partition a source by, so that few exchanges follow.

    They are the fields by which all downstream aggregates group and lookups match. If there are
    none in common, those of the first such box; the others get an exchange. Without such boxes, the
    identity. No fields (one partition does all the work) if no box groups by fields of the source.

    Args:
        network: The network.
        source: The source.
        fields: Its fields.
        identity: Its identity.
    """
    groups = list(_groups(network, source, frozenset(fields)))
    if not groups:
        return identity
    shared = [name for name in groups[0] if all(name in other for other in groups)]
    first: list[str] = next((names for names in groups if names), [])
    return tuple(shared or first)


def _groups(network: Network, arc: str, usable: frozenset[str]) -> Iterator[list[str]]:
    """Yield the fields of the source by which each box downstream of an arc groups or matches."""
    for box in network.declarations.values():
        if arc not in box.reads:
            continue
        groups = box.grouped_by(arc)
        if groups is not None:
            yield [name for name in groups if name in usable]
        below = box.keeps(arc, usable)
        if below is not None:
            yield from _groups(network, box.name, below)


_WHERE = {
    "partition": FieldType("int"),
    "offset": FieldType("long"),
    "time_ms": FieldType("long"),  # the record timestamp, as its producer set it
    "key": FieldType("bytes", optional=True),
    "value": FieldType("bytes", optional=True),
}
NEWEST_MS = "newest_ms"
"""Newest event time that a record's partition had seen in earlier epochs, less lateness. `keep` is
checked against it, so that the result does not depend on which task checks, or when."""


def original_arc(source: str) -> Arc:
    """Return the arc of a rekeyed source's exchange, which holds an insert for each record."""
    fields = _WHERE | {NEWEST_MS: FieldType("long")}
    where = ("partition", "offset")
    return Arc(exchange_of(source), fields, where, "time_ms", (), exchange=True)


def originals(batches: Sequence[Records]) -> pl.DataFrame:
    """Return records as tuples, in order."""
    return pl.concat(
        [
            pl.DataFrame(schema=physical(_WHERE)),
            *(
                pl.DataFrame(
                    {
                        "partition": [records.source.partition] * len(records),
                        "offset": records.offsets,
                        "time_ms": list(records.times_ms),
                        "key": records.keys,
                        "value": records.values,
                    },
                    schema=physical(_WHERE),
                )
                for records in batches
            ),
        ]
    )


def own_topics(plan: CompiledPlan) -> set[str]:
    """Return the topics that only the network itself may write, but for those of later versions."""
    net, topology, deployment = plan.network, plan.topology, plan.deployment
    return {
        names.SCHEMAS_TOPIC,
        names.progress_topic(net),
        names.plan_topic(net),
        names.dead_letters_topic(net),
        *map(deployment.topic, topology.topics),
        *map(deployment.requests, plan.replayed_points()),
        *map(deployment.replies, topology.scopes.values()),
    }


def refuse_own_topics(network: Network, plan: CompiledPlan) -> list[Fault]:
    """Return a fault for each source and sink whose topic is one of the network's own."""
    own, need = own_topics(plan), "a topic that is not the network's own"
    users = [
        *((n, s.topic, network.declarations[n].place) for n, s in plan.topology.sources.items()),
        *((sink.arc, sink.topic, sink.place) for sink in network.sinks),
    ]
    return [
        Fault(name, need, repr(topic), "name another topic", place)
        for name, topic, place in users
        if names.unversioned(topic) in own
    ]


def type_sinks(network: Network, typed: Typed) -> None:
    """Type the sinks of a network: add them to `typed`, or note their faults.

    Each identity must have one writer in a sink. If an identity can move between partitions of its
    arc, an exchange by identity stands before the sink. The results of a job on Spark are written
    by a task that follows the job's reports, as readers of a sink don't.
    """
    topics: dict[str, str] = {source.topic: name for name, source in typed.sources.items()}
    for sink in network.sinks:
        for what, value, allowed in (
            ("an envelope", sink.envelope, SINK_ENVELOPES),
            ("a format", sink.format, SINK_FORMATS),
        ):
            if value not in allowed:
                need = f"{what} of {', '.join(allowed)} for its sink"
                typed.faults.append(
                    Fault(sink.arc, need, repr(value), "use one of those", sink.place)
                )
        if sink.topic in topics:
            actual = f"{sink.topic!r}, which {topics[sink.topic]!r} uses"
            need, remedy = "a topic that no other sink or source uses", "name another topic"
            typed.faults.append(Fault(sink.arc, need, actual, remedy, sink.place))
        topics[sink.topic] = sink.arc
        arc = typed.arcs.get(sink.arc)
        if arc is None:
            continue  # an upstream fault is noted already
        if sink.arc in typed.sources and typed.sources[sink.arc].is_bound:
            need, actual = "a box before its sink", "the arc of another network"
            remedy = "declare the sink there, or filter the arc here"
            typed.faults.append(Fault(sink.arc, need, actual, remedy, sink.place))
            continue
        name = sink_of(sink.arc)
        has_order = not arc.exchange and set(arc.partition_by) <= set(arc.identity)
        source = typed.sources.get(sink.arc)
        is_of_job = sink.arc in typed.spark or (source is not None and source.on_spark)
        if is_of_job and has_order:
            typed.arcs[name] = replace(arc, name=name, keep_ms=None, sink=True)
            typed.boxes[name] = Forward(typed.arcs[name], sink.arc)
            typed.sinks.append(replace(sink, arc=name))
            continue
        if has_order:
            typed.sinks.append(sink)
            continue
        if name not in typed.arcs:
            above = repartitioned(typed, name, arc, by=arc.identity, partitions=None)
            typed.arcs[name] = replace(above, name=name, exchange=False, sink=True)
            typed.boxes[name] = Forward(typed.arcs[name], above.name)
        typed.sinks.append(replace(sink, arc=name))
