"""Reads back what a task has sent to a sink, where no topic of the network has it.

A task that was away for long is rebuilt: it emits the difference to what it emitted last. Results
that go to a sink alone are read from the sink's topic, with the decoder of a source of the same
envelope and format. What that topic no longer has, by its retention, is sent again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import polars as pl

from errata.processors.arcs.arc_topic import read_to_end
from errata.processors.arcs.partitioner import Spread
from errata.processors.declare.declarations import Sink
from errata.processors.envelopes.batch import ROW, Batch, Checks
from errata.processors.envelopes.make import make
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Source
from errata.processors.tasks.shared import Shared
from errata.schemas import revisions as frames
from errata.topics.cluster import TopicPartition

MOST_ROWS = 500_000
"""So many revisions are held before only the last one of each tuple is kept."""


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
    names, identity = arc.visible, list(arc.identity)
    shown = replace(arc, fields={name: arc.fields[name] for name in names})
    source = Source(shown, sink.topic, sink.envelope, sink.format, 0, None, None)
    envelope = make(source, shared.registry)
    spread = Spread(shown, shared.plan.placement.partitions[sink.arc])
    parts, rows, count = [frames.none(shown.fields).with_row_index("epoch")], 0, 0
    for number in range(shared.cluster.partitions(sink.topic)):
        for records in read_to_end(shared.cluster, TopicPartition(sink.topic, number), 0):
            if records is None:
                yield False
                continue
            decoded = envelope.decode(Batch(records.values, records.keys))
            revisions = Checks(shown)(decoded.frame).frame.sort(ROW, maintain_order=True)
            # A record's place decides, as the consumers of the topic see it.
            revisions = revisions.with_row_index("epoch", offset=count).select(parts[0].columns)
            count += revisions.height
            own = spread.places(frames.identities(revisions, identity)) == partition
            parts.append(revisions.filter(own))
            rows += parts[-1].height
            if rows > MOST_ROWS:
                parts, rows = [frames.last(pl.concat(parts), identity)], 0
    tuples = frames.fold(pl.concat(parts), identity, names)
    hidden = (pl.lit(None, t.dtype).alias(n) for n, t in arc.fields.items() if n not in names)
    return tuples.with_columns(*hidden).select(list(arc.fields))
