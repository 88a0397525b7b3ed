"""Reads back what a task has sent to a sink, where no topic of the network has it.

A task that was away for long is rebuilt: it emits the difference to what it emitted last. Results
that go to a sink alone are read from the sink's topic, with the decoder of a source of the same
envelope and format. What that topic no longer has, by its retention, is sent again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import polars as pl

from errata.processors.arcs.partitioner import Spread
from errata.processors.declare.declarations import Sink
from errata.processors.envelopes.batch import ROW, Batch, check
from errata.processors.envelopes.make import make
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Source
from errata.processors.tasks.shared import Shared
from errata.schemas import revisions as frames
from errata.topics.cluster import Records, TopicPartition


def is_readable(plan: CompiledPlan, name: str) -> bool:
    """Whether the records of an arc's sinks tell which tuple they are of, and when it happened."""
    arc = plan.topology.arcs[name]
    return {*arc.identity, arc.event_time} <= {*arc.visible}


def sink_content(
    shared: Shared, sink: Sink, *, partition: int
) -> Generator[bool, None, pl.DataFrame]:
    """Return the tuples of a partition of a sink's arc, as the sink's topic has them.

    Hidden fields are null. Records that others have written there, and that can't be read, are
    ignored.

    Args:
        shared: State shared by the tasks of the process.
        sink: The sink; its arc is readable (`is_readable`).
        partition: The partition of the task that writes to it.
    """
    arc = shared.plan.topology.arcs[sink.arc]
    names = arc.visible
    shown = replace(arc, fields={name: arc.fields[name] for name in names})
    source = Source(shown, sink.topic, sink.envelope, sink.format, 0, None, None)
    envelope, parts = make(source, shared.registry), list[pl.DataFrame]()
    for number in range(shared.cluster.partitions(sink.topic)):
        for records in (yield from _records(shared, TopicPartition(sink.topic, number))):
            decoded = envelope.decode(Batch(records.values, records.keys))
            parts.append(check(shown, decoded.frame).frame.sort(ROW, maintain_order=True))
    revisions = pl.concat([frames.none(shown.fields), *parts], how="diagonal")
    # A record's place decides, as the consumers of the topic see it.
    tuples = frames.fold(revisions.with_row_index("epoch"), arc.identity, names)
    places = Spread(shown, shared.plan.placement.partitions[sink.arc]).places(tuples)
    hidden = (pl.lit(None, t.dtype).alias(n) for n, t in arc.fields.items() if n not in names)
    return tuples.filter(places == partition).with_columns(*hidden).select(list(arc.fields))


def _records(shared: Shared, place: TopicPartition) -> Generator[bool, None, list[Records]]:
    """Return all records of a partition up to its current end."""
    start, end = shared.cluster.offset_at(place, 0), shared.cluster.end(place)
    reader, found = shared.cluster.reader({place: start}), list[Records]()
    try:
        while reader.position(place) < end:
            found += reader.poll()
            yield False
    finally:
        reader.close()
    return found
