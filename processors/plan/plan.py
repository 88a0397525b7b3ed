"""A plan: the boxes of a network, with their scopes, partitions and topics."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from errata.processors.boxes.base import Box
from errata.processors.boxes.modes import Choice
from errata.processors.boxes.replay import ReplayPath
from errata.processors.declare.declarations import Sink
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.plan.arc_name import exchange_of, read_by
from errata.processors.plan.scope import Scope, ingest_scope, owning_scope
from errata.processors.plan.source import Source
from errata.processors.wire.task_id import ScopeId
from errata.schemas.arc import Arc
from errata.topics import names


@dataclass(frozen=True)
class Plan:
    """A network that can run.

    Args:
        network: Its name.
        sources: By name; each is a scope of its own, ``ingest.<source>``.
        boxes: By name, in topological order.
        scopes: By name; those of boxes, and of the owners of rekeyed sources.
        arcs: By name.
        topics: Names of the arcs that are written to topics.
        paths: By name of an aggregate: how its inputs are replayed.
        choices: By name of an aggregate, or a lag: its mode, and why.
        sources_of: By arc: the sources that it comes from.
        kept_ms: By connection point: how much event time it really keeps.
        exchanged: By exchange: the requested partitions; None: as many as its input has.
        sinks: The users' topics that results go to.
        spark: By aggregate on Spark: how long a window's state is kept after the window closes, ms.
        partitions: By arc: its number of partitions; empty before the plan is placed.
        topic_partitions: By source: number of partitions of the user's topic.
        sink_partitions: By topic of a sink: its number of partitions.
        deployment: Id of the deployment; "" before it.
        version: Version of the deployed plan; the next one has other numbers of partitions.
        first_epoch: The first epoch that this version processes; moved tuples belong to the epoch
            before it.
        generations: By arc: the version that made its topic; 1 if absent.
    """

    network: str
    sources: dict[str, Source]
    boxes: dict[str, Box]
    scopes: dict[str, Scope]
    arcs: dict[str, Arc]
    topics: tuple[str, ...]
    paths: dict[str, ReplayPath]
    choices: dict[str, Choice]
    sources_of: dict[str, tuple[str, ...]]
    kept_ms: dict[str, int]
    exchanged: dict[str, int | tuple[str, ...] | None]
    sinks: tuple[Sink, ...] = ()
    spark: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    topic_partitions: dict[str, int] = field(default_factory=dict)
    sink_partitions: dict[str, int] = field(default_factory=dict)
    deployment: str = ""
    version: int = 1
    first_epoch: int = 0
    generations: dict[str, int] = field(default_factory=dict)

    def topic(self, arc: str) -> str:
        """Return the topic of an arc."""
        version = self.generations.get(arc, 1)
        if self.arcs[arc].exchange:
            return names.exchange_topic(self.network, read_by(arc), version=version)
        return names.arc_topic(self.network, arc, version=version)

    def requests(self, arc: str) -> str:
        """Return the topic of the requests to the sweepers of a connection point."""
        return names.requests_topic(self.network, arc, version=self.generations.get(arc, 1))

    def replies(self, scope: str) -> str:
        """Return the topic of the replies to the tasks of a scope, one partition per task."""
        version = self.generations.get(self.scopes[scope].inputs[0], 1)
        return names.replay_topic(self.network, scope, version=version)

    def scope_of(self, arc: str) -> str:
        """Return the scope that writes an arc; for a source it is ``ingest.<source>``.

        For a rekeyed source that scope writes the exchange, and ``<source>-owner`` writes the arc.
        """
        if arc in self.sources and self.sources[arc].rekey:
            return owning_scope(arc)
        if read_by(arc) in self.sources:
            return ingest_scope(read_by(arc))
        return next(scope.name for scope in self.scopes.values() if arc in scope.boxes)

    def placed(
        self, topic_partitions: dict[str, int], *, sink_partitions: dict[str, int] | None = None
    ) -> Plan:
        """Return the plan with all numbers of partitions, given those of the users' topics.

        Args:
            topic_partitions: By source: partitions of its topic.
            sink_partitions: By existing topic of a sink: its partitions; others get their arc's.

        Raises:
            NetworkError: If arcs that are read together have different numbers of partitions.
        """
        counts = {
            name: source.partitions or topic_partitions[name]
            for name, source in self.sources.items()
        }
        counts |= {exchange_of(s): counts[s] for s, source in self.sources.items() if source.rekey}
        for name, box in self.boxes.items():
            asked = self.exchanged.get(name) or box.inputs[:1]
            counts[name] = max(counts[a] for a in asked) if isinstance(asked, tuple) else asked
        faults = []
        for scope in self.scopes.values():
            found = {arc: counts[arc] for arc in scope.inputs}
            if len(set(found.values())) > 1:
                told = ", ".join(f"{count} of {arc!r}" for arc, count in found.items())
                remedy = "give their sources the same partitions="
                faults.append(Fault(scope.name, "inputs of as many partitions", told, remedy))
        if faults:
            raise NetworkError(self.network, faults)
        sunk = {sink.topic: counts[sink.arc] for sink in self.sinks} | (sink_partitions or {})
        return replace(
            self,
            partitions=counts,
            topic_partitions=dict(topic_partitions),
            sink_partitions=sunk,
        )

    def partition_count(self, arc: str) -> int:
        """Return the number of partitions of an arc."""
        return self.partitions[arc]

    def tasks(self, scope: str) -> list[str]:
        """Return the tasks of a scope, one per partition."""
        own = ScopeId.parse(scope)
        return [str(own.task(partition)) for partition in range(self.task_count(own))]

    def task_count(self, scope: ScopeId) -> int:
        """Return the number of tasks of an ingest scope or a scope of boxes."""
        if scope.is_ingest:
            return self.topic_partitions[scope.name]
        return self.partition_count(self.scopes[scope.name].inputs[0])

    def owned(self, scope: str) -> Source | None:
        """Return the source whose identities the tasks of a scope own; None if they run boxes."""
        found = self.scopes[scope]
        return None if found.boxes else self.sources[found.outputs[0]]

    def sources_behind(self, scope: str) -> tuple[str, ...]:
        """Return the sources that the inputs of a scope come from, in order."""
        inputs = self.scopes[scope].inputs
        return tuple(dict.fromkeys(s for arc in inputs for s in self.sources_of[arc]))

    @cached_property
    def moved(self) -> frozenset[str]:
        """The arcs downstream of a map that replaces the event time, its own arc among them."""
        found = set[str]()
        for name, box in self.boxes.items():
            if box.moves_event_time or not found.isdisjoint(box.inputs):
                found.add(name)
        return frozenset(found)

    def shared_by(self, scope: str) -> str:
        """Return a topic with one partition per task of a scope, for its consumer group."""
        own = ScopeId.parse(scope)
        if own.is_ingest:
            return self.sources[own.name].topic
        return self.replies(scope)

    def sinks_of(self, arc: str) -> list[Sink]:
        """Return the sinks that an arc's revisions go to."""
        return [sink for sink in self.sinks if sink.arc == arc]

    def emitted(self, scope: Scope) -> list[str]:
        """Return the arcs of a scope that are written to a topic: their own, or a sink's."""
        sunk = {sink.arc for sink in self.sinks}
        return [box for box in scope.boxes if box in scope.outputs or box in sunk]

    def closes_windows(self, scope: str) -> bool:
        """Whether windows of a scope may close in an epoch without input."""
        return any(box in self.choices for box in self.scopes[scope].boxes)

    def writers(self, arc: str, partition: int) -> list[str]:
        """Return the tasks that may write to one partition of an arc."""
        scope = self.scope_of(arc)
        if arc in self.sources or self.arcs[arc].exchange:
            return self.tasks(scope)
        return [str(ScopeId.parse(scope).task(partition))]

    def read_by(self, scope: str, partition: int) -> list[tuple[str, int]]:
        """Return the arcs and partitions that a task's output depends on; on Spark, all of them."""
        found = self.scopes[scope]
        return [
            (arc, number)
            for arc in found.inputs
            for number in (range(self.partition_count(arc)) if found.on_spark else (partition,))
        ]

    def asked(self) -> list[str]:
        """Return the connection points that some box sends requests to; they need sweepers."""
        found = {anchor.arc.name for path in self.paths.values() for anchor in path.anchors}
        found |= {choice.results for choice in self.choices.values() if choice.results}
        return [arc for arc in self.arcs if arc in found]

    def radius_ms(self, arc: str) -> int:
        """Return the radius of an anchor: the largest that any box needs; 0 if none replays it."""
        return max((path.radius_ms(arc) for path in self.paths.values()), default=0)

    def asked_by(self, scope: Scope) -> list[str]:
        """Return the connection points that the boxes of a scope send requests to."""
        found = {
            anchor.arc.name
            for box in scope.boxes
            if box in self.paths
            for anchor in self.paths[box].anchors
        }
        found |= {c.results for b in scope.boxes if (c := self.choices.get(b)) and c.results}
        return [arc for arc in self.arcs if arc in found]

    def asked_everywhere(self, box: str) -> list[str]:
        """Return the connection points of which a box asks all partitions."""
        path = self.paths.get(box)
        return [a.arc.name for a in path.anchors if a.everywhere] if path else []

    def readers(self, arc: str) -> list[str]:
        """Return the scopes that read an arc's topic."""
        return [scope.name for scope in self.scopes.values() if arc in scope.inputs]

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain data, for the plan topic and `errata explain`."""
        return {
            "network": self.network,
            "sources": {
                name: {
                    "topic": s.topic,
                    "envelope": s.envelope,
                    "format": s.format,
                    "topic_partitions": self.topic_partitions.get(name),
                    "lateness_ms": s.lateness_ms,
                    "idle_after_ms": s.idle_after_ms,
                    "event_time": None if s.event_time is None else s.event_time.text,
                    "rekey": s.rekey,
                }
                for name, s in self.sources.items()
            },
            "arcs": {
                name: {
                    "fields": {n: str(t) for n, t in arc.fields.items()},
                    "identity": list(arc.identity),
                    "event_time": arc.event_time,
                    "partition_by": list(arc.partition_by),
                    "partitions": self.partitions.get(name),
                    "keep_ms": arc.keep_ms,
                }
                for name, arc in self.arcs.items()
            },
            "boxes": {name: box.describe() for name, box in self.boxes.items()},
            "sinks": [
                {"arc": s.arc, "topic": s.topic, "envelope": s.envelope, "format": s.format}
                for s in self.sinks
            ],
            "scopes": {name: list(scope.boxes) for name, scope in self.scopes.items()},
            "modes": {name: choice.mode for name, choice in self.choices.items()},
            **({"spark": self.spark} if self.spark else {}),
            "generations": self.generations,
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the plan; equal plans have equal digests."""
        return _digest(self.describe())

    @cached_property
    def shape(self) -> str:
        """A digest of the plan without its numbers of partitions."""
        return _digest(without_counts(self.describe()))


def without_counts(description: dict[str, Any]) -> dict[str, Any]:
    """Return a plan's description without its numbers of partitions."""
    plain = {key: value for key, value in description.items() if key != "generations"}
    for group, count in (("sources", "topic_partitions"), ("arcs", "partitions")):
        plain[group] = {
            name: {key: value for key, value in each.items() if key != count}
            for name, each in description[group].items()
        }
    return plain


def _digest(description: dict[str, Any]) -> str:
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
