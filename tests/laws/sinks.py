"""Checks what plain consumers read from sinks.

Plain consumers ignore reports, so these scenarios have no late EndTxn, which would let them read
half of an aborted transaction.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from errata.processors.declare.declarations import Sink
from errata.processors.plan.arc_name import owner_of
from errata.schemas.partition import partitions
from errata.topics.cluster import TopicPartition
from tests.laws.oracle import Content, Tuple
from tests.laws.simulation import Simulation

_LETTERS = {(True, False): "d", (False, True): "c", (True, True): "u"}
_WORDS = {"d": "delete", "c": "insert", "u": "replace"}
_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {"date": date.fromisoformat, "double": float}


class SinkAudit:
    """Checks that a sink's records are consistent one after another, and their final content.

    Args:
        simulation: A finished simulation.
        contents: The expected final content by arc.
        found: Gets the violations, by law.
    """

    def __init__(
        self, simulation: Simulation, contents: Mapping[str, Content], found: dict[str, list[str]]
    ) -> None:
        self.simulation, self.plan, self.found = simulation, simulation.plan, found
        for sink in self.plan.topology.sinks:
            wanted = contents.get(owner_of(sink.arc), {})
            shown = self.plan.topology.arcs[sink.arc].visible
            names = [name for name in self.plan.topology.arcs[sink.arc].identity if name in shown]
            self._check(
                sink,
                {
                    tuple(t[name] for name in names): {n: t[n] for n in shown}
                    for t in wanted.values()
                },
            )

    def _check(self, sink: Sink, wanted: Content) -> None:
        folded: Content = {}
        count = self.plan.placement.sink_partitions[sink.topic]
        for partition in range(count):
            place = TopicPartition(sink.topic, partition)
            records, _ = self.simulation.cluster.log(place).read(0, 2**40)
            rows = [
                (tuple(self._decoded(sink, key).values()), self._decoded(sink, value))
                for key, value in zip(records.keys, records.values, strict=True)
            ]
            for key in records.keys:
                if partitions([key or b""], count)[0] != partition:
                    self.found["L6"].append(f"{place}: {key!r} belongs elsewhere")
            self.simulation.seen["sunk"] += len(rows)
            (self._upserts if sink.envelope == "upsert" else self._changes)(sink, rows, folded)
        for identity in folded.keys() | wanted.keys():
            is_, should = folded.get(identity), wanted.get(identity)
            if is_ != should:
                self.found["L6"].append(
                    f"sink {sink.topic}: {identity} is {is_}, should be {should}"
                )

    def _upserts(self, sink: Sink, rows: list[Any], folded: Content) -> None:
        for identity, value in rows:
            self._next(sink, identity, folded.get(identity), value, folded)

    def _changes(self, sink: Sink, rows: list[Any], folded: Content) -> None:
        """Take revisions; after a delete of Debezium there is a tombstone."""
        place = 0
        while place < len(rows):
            identity, told = rows[place]
            place += 1
            if told is None:
                self.found["L6"].append(f"sink {sink.topic}: a tombstone of {identity} too many")
                continue
            before, after = (self._typed(sink, told[side]) for side in ("before", "after"))
            letter = _LETTERS.get((before is not None, after is not None), "")
            op = letter if sink.envelope == "debezium" else _WORDS.get(letter)
            if told["op"] != op:
                self.found["L3"].append(f"sink {sink.topic}: {told} is no {told['op']}")
            if sink.envelope == "debezium" and letter == "d":
                if rows[place : place + 1] != [(identity, None)]:
                    self.found["L6"].append(f"sink {sink.topic}: no tombstone of {identity}")
                place += 1
            self._next(sink, identity, before, after, folded)

    def _next(
        self,
        sink: Sink,
        identity: tuple[Any, ...],
        before: Tuple | None,
        after: Tuple | None,
        folded: Content,
    ) -> None:
        known = folded.pop(identity, None)
        if before != known:
            self.found["L3"].append(f"sink {sink.topic}: {identity} was {known}, not {before}")
        if after == known:
            self.found["L2"].append(f"sink {sink.topic}: {identity} is unchanged: {after}")
        if after is not None:
            folded[identity] = after

    def _decoded(self, sink: Sink, told: bytes | None) -> Any:
        if told is None:
            return None
        if sink.format == "avro":
            return self.simulation.history.decode(told)
        return self._typed(sink, json.loads(told, parse_float=Decimal))

    def _typed(self, sink: Sink, told: Any) -> Any:
        """Return a tuple from JSON with typed values; other values are returned unchanged."""
        fields = self.plan.topology.arcs[sink.arc].fields
        if sink.format == "avro" or not isinstance(told, dict) or not set(told) <= set(fields):
            return told
        return {
            name: value if value is None else _FROM_JSON.get(fields[name].kind, _as_is)(value)
            for name, value in told.items()
        }


def _as_is(value: Any) -> Any:
    return value
