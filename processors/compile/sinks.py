"""Sinks: users' topics to which results are written, without hidden fields."""

from __future__ import annotations

from dataclasses import replace

from errata.processors.boxes.forward import Forward
from errata.processors.compile.exchanges import repartitioned
from errata.processors.compile.typed import Typed
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import sink_of

ENVELOPES, FORMATS = ("native", "debezium", "upsert"), ("avro", "json")


def type_sinks(network: Network, typed: Typed) -> None:
    """Type the sinks of a network: add them to `typed`, or note their faults.

    Each identity must have one writer in a sink. If an identity can move between partitions of its
    arc, an exchange by identity stands before the sink. The results of a job on Spark are written
    by a task that follows the job's reports, as readers of a sink don't.
    """
    topics: dict[str, str] = {source.topic: name for name, source in typed.sources.items()}
    for sink in network.sinks:
        for what, value, known in (
            ("an envelope", sink.envelope, ENVELOPES),
            ("a format", sink.format, FORMATS),
        ):
            if value not in known:
                need = f"{what} of {', '.join(known)} for its sink"
                typed.faults.append(
                    Fault(sink.arc, need, repr(value), "use one of those", sink.place)
                )
        if sink.topic in topics:
            found = f"{sink.topic!r}, which {topics[sink.topic]!r} uses"
            need, remedy = "a topic of its own for its sink", "name another topic"
            typed.faults.append(Fault(sink.arc, need, found, remedy, sink.place))
        topics[sink.topic] = sink.arc
        arc = typed.arcs.get(sink.arc)
        if arc is None:
            continue  # an upstream fault is noted already
        name = sink_of(sink.arc)
        if sink.arc in typed.spark:
            typed.arcs[name] = replace(arc, name=name, keep_ms=None, sink=True)
            typed.boxes[name] = Forward(typed.arcs[name], sink.arc)
            typed.sources_of[name] = typed.sources_of[sink.arc]
            typed.sinks.append(replace(sink, arc=name))
            continue
        if not arc.exchange and set(arc.partition_by) <= set(arc.identity):
            typed.sinks.append(sink)
            continue
        if name not in typed.arcs:
            above = repartitioned(typed, name, arc, by=arc.identity, partitions=None)
            typed.arcs[name] = replace(above, name=name, exchange=False, sink=True)
            typed.boxes[name] = Forward(typed.arcs[name], above.name)
            typed.sources_of[name] = typed.sources_of[sink.arc]
        typed.sinks.append(replace(sink, arc=name))
