"""What a network holds at rest, and what follows from the records that were sent."""

import json
from decimal import Decimal
from typing import Any

from errata.processors.declare.declarations import Sink
from errata.topics.cluster import TopicPartition
from tests.laws.audit import _matches
from tests.laws.envelopes import PASSED, read
from tests.laws.oracle import Tuple
from tests.laws.simulation import Simulation
from tests.laws.sources import Intake


def sent(simulation: Simulation, source: str) -> dict[Any, Tuple]:
    """Return the tuples of a source by identity, from the records that were sent."""
    held: dict[Any, Tuple] = {}
    for records in simulation.tape[source]:
        intake = Intake(
            simulation.shape.keep, simulation.shape.lateness, simulation.plan.reach_ms.get(source)
        )
        lines = [read(record, "native") for record in records]
        intake.take([(n, line) for n, line in enumerate(lines) if line != PASSED])
        held |= {(key,): each for key, each in intake.held.items()}
    return held


def content(simulation: Simulation, arc: str) -> dict[Any, Tuple]:
    """Return the tuples of an arc by identity, from the records that its topic has now."""
    history, found = simulation.history, dict[Any, Tuple]()
    history.read()
    newest = {report["task"]: report for report in history.reports}
    for place in history.arcs[arc]:
        last: dict[Any, tuple[Any, Any]] = {}
        for row in history.present(place):
            if row.content is None:
                continue
            record = row.content
            committed = {c["attempt"]: c["epoch"] for c in newest[record["task"]]["committed"]}
            if record["epoch"] > committed.get(record["attempt"], -1):
                continue
            named = record["after"] or record["before"]
            key = tuple(named[name] for name in simulation.plan.topology.arcs[arc].identity)
            order = record["epoch"], record["op"] != "delete"
            if key not in last or last[key][0] <= order:
                last[key] = order, record["after"]
        alive = {key: after for key, (_, after) in last.items() if after is not None}
        assert not found.keys() & alive.keys()
        found |= alive
    return found


def differing(found: dict[Any, Tuple], should: dict[Any, Tuple]) -> dict[Any, Any]:
    """Return what there is and should be, by key, where the two differ."""
    return {
        key: (found.get(key), should.get(key))
        for key in found.keys() | should.keys()
        if not _matches(found.get(key), should.get(key))
    }


def sunk(simulation: Simulation, sink: Sink) -> dict[Any, Tuple]:
    """Return what a plain consumer of an upsert sink folds its topic to, by identity."""
    folded, fields = dict[Any, Tuple](), simulation.plan.topology.arcs[sink.arc].fields
    for partition in range(simulation.plan.placement.sink_partitions[sink.topic]):
        log = simulation.cluster.log(TopicPartition(sink.topic, partition))
        records, _ = log.read(0, 2**40)
        for key, value in zip(records.keys, records.values, strict=True):
            identity = tuple(json.loads(key or b"").values())
            folded.pop(identity, None)
            if value is not None:
                told = json.loads(value, parse_float=Decimal)
                doubles = {n: float(v) for n, v in told.items() if v and fields[n].kind == "double"}
                folded[identity] = told | doubles
    return folded
