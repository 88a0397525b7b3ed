"""From what a user declared to what runs: types, scopes, partitions, anchors, modes.

`compile_network` finds every fault before anything runs and tells all of them at once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from processors.arcs import type_boxes
from processors.boxes.map import Map
from processors.boxes.where import Where
from processors.faults import Fault, NetworkError
from processors.modes import Choice, choose
from processors.network import Network
from processors.replay import Box, ReplayPath
from processors.scopes import Scope, assign_scopes, make_scopes
from processors.typed import Source, Typed
from schemas.arc import Arc
from topics import names


@dataclass(frozen=True)
class Plan:
    """A network that can run.

    Args:
        network: Its name.
        sources: By name; each is a scope of its own, ``ingest.<source>``.
        boxes: By name, in topological order.
        scopes: By name; only those of boxes.
        arcs: By name: what each carries.
        topics: Names of the arcs that are written to topics.
        paths: By name of an aggregate: how its inputs are replayed.
        choices: By name of an aggregate: its mode, and why.
        source_of: By arc: the source it comes from.
        kept_ms: By connection point: how much event time it really keeps.
        partitions: By source: partitions of its arc, and of all arcs behind it.
        topic_partitions: By source: partitions of the user's topic.
        deployment: Id of what is deployed; "" before.
    """

    network: str
    sources: dict[str, Source]
    boxes: dict[str, Box]
    scopes: dict[str, Scope]
    arcs: dict[str, Arc]
    topics: tuple[str, ...]
    paths: dict[str, ReplayPath]
    choices: dict[str, Choice]
    source_of: dict[str, str]
    kept_ms: dict[str, int]
    partitions: dict[str, int] = field(default_factory=dict)
    topic_partitions: dict[str, int] = field(default_factory=dict)
    deployment: str = ""

    def topic(self, arc: str) -> str:
        """Return the topic of an arc."""
        return names.arc_topic(self.network, arc)

    def scope_of(self, arc: str) -> str:
        """Return the scope that writes an arc; that of a source is ``ingest.<source>``."""
        if arc in self.sources:
            return f"ingest.{arc}"
        return next(scope.name for scope in self.scopes.values() if arc in scope.boxes)

    def placed(self, topic_partitions: dict[str, int]) -> Plan:
        """Return the plan with the users' topics as they are found on a cluster."""
        counts = {
            name: source.partitions or topic_partitions[name]
            for name, source in self.sources.items()
        }
        return replace(self, partitions=counts, topic_partitions=dict(topic_partitions))

    def partition_count(self, arc: str) -> int:
        """Return how many partitions an arc has: as many as its source's arc."""
        return self.partitions[self.source_of[arc]]

    def asked(self) -> list[str]:
        """Return the connection points that some box asks, which therefore need a sweeper."""
        found = {path.anchor.name for path in self.paths.values()}
        found |= {choice.results for choice in self.choices.values() if choice.results}
        return [arc for arc in self.arcs if arc in found]

    def radius_ms(self, arc: str) -> int:
        """Return the radius of an anchor: the most that any box asks of it; 0 if none does."""
        return max((p.radius_ms for p in self.paths.values() if p.anchor.name == arc), default=0)

    def readers(self, arc: str) -> list[str]:
        """Return the scopes that read an arc's topic."""
        return [scope.name for scope in self.scopes.values() if arc in scope.inputs]

    def describe(self) -> dict[str, object]:
        """Return the plan as plain data: what the plan topic holds and `errata explain` prints."""
        return {
            "network": self.network,
            "sources": {
                name: {
                    "topic": s.topic,
                    "envelope": s.envelope,
                    "format": s.format,
                    "partitions": self.partitions.get(name),
                    "topic_partitions": self.topic_partitions.get(name),
                    "lateness_ms": s.lateness_ms,
                    "idle_after_ms": s.idle_after_ms,
                }
                for name, s in self.sources.items()
            },
            "arcs": {
                name: {
                    "fields": {n: str(t) for n, t in arc.fields.items()},
                    "identity": list(arc.identity),
                    "event_time": arc.event_time,
                    "partition_by": list(arc.partition_by),
                    "keep_ms": arc.keep_ms,
                }
                for name, arc in self.arcs.items()
            },
            "boxes": {name: describe_box(box) for name, box in self.boxes.items()},
            "scopes": {name: list(scope.boxes) for name, scope in self.scopes.items()},
            "modes": {name: choice.mode for name, choice in self.choices.items()},
        }

    def fingerprint(self) -> str:
        """Return a digest that is the same for the same plan."""
        text = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe_box(box: Box) -> dict[str, object]:
    """Return what defines a box, as plain data."""
    if isinstance(box, Where):
        return {"where": box.predicate.text, "input": box.input}
    if isinstance(box, Map):
        texts = {name: expression.text for name, expression in box.expressions.items()}
        return {"map": texts, "input": box.input}
    return {
        "aggregate": {name: result.text for name, result in box.results.items()},
        "by": list(box.by),
        "size_ms": box.window.size_ms,
        "slide_ms": box.window.slide_ms,
        "input": box.input.name,
    }


def compile_network(network: Network, *, mode: str | None = None, every_arc: bool = False) -> Plan:
    """Judge a network and work out how it runs.

    Args:
        network: What the user declared.
        mode: Overrides the mode of every aggregate.
        every_arc: Write every arc to a topic, not only those that somebody reads: for `Driver`.

    Raises:
        NetworkError: With one fault per thing that keeps it from running.
    """
    typed = type_boxes(network)
    faults = list(typed.faults)
    if not network.declarations:
        faults.append(Fault(network.name, "at least one source", "none", "declare one"))
    scopes = assign_scopes(network, typed, faults)
    paths, choices, more = choose(network, typed, mode=mode)
    faults += more
    if faults:
        raise NetworkError(network.name, faults)
    readers = {d.input for d in network.declarations.values()}
    crossing = {
        d.input
        for name, d in network.declarations.items()
        if d.input is not None and scopes[name] != scopes[d.input]
    }
    written = tuple(
        name
        for name, arc in typed.arcs.items()
        if every_arc
        or arc.is_connection_point
        or name in crossing
        or name in typed.sources
        or name not in readers
    )
    return Plan(
        network=network.name,
        sources=typed.sources,
        boxes=typed.boxes,
        scopes=make_scopes(network, typed, scopes, written),
        arcs=typed.arcs,
        topics=written,
        paths=paths,
        choices=choices,
        source_of=typed.source_of,
        kept_ms=kept(typed),
    )


def kept(typed: Typed) -> dict[str, int]:
    """Return what each connection point keeps: never less than its source lets be revised."""
    result = {}
    for name, arc in typed.arcs.items():
        if arc.keep_ms is not None:
            source = typed.arcs[typed.source_of[name]]
            result[name] = max(arc.keep_ms, source.keep_ms or 0)
    return result
