"""The topology of a network: what runs, whatever its partitions and topics.

It has compiled sources (users' topics, and how they are ingested) and scopes (boxes that run
together in one process).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import Any, Self

from errata.processors.boxes.base import described_inputs
from errata.processors.declare import declarations as declared
from errata.processors.declare.declarations import Sink
from errata.processors.plan.arc_name import ArcName, exchange_of, read_by
from errata.processors.propagation.graph import Graph
from errata.processors.propagation.orders import STATIC, choose_order
from errata.processors.windows.time_windows import duration_ms
from errata.processors.wire.task_id import ScopeId
from errata.schemas.arc import Arc, usual_shift_ms
from errata.schemas.fields import FieldType
from errata.topics import names

MAX_AHEAD_MS = duration_ms(declared.MAX_AHEAD, what="max_ahead")
"""A description names another bound only: the first version of plans had none."""


@dataclass(frozen=True)
class Source:
    """A user's topic and how it is ingested.

    Args:
        arc: The arc that ingest writes.
        topic: The user's topic.
        envelope: ``append``, ``upsert``, ``debezium``, ``native``, or ``arc``: see `is_bound`.
        format: ``avro``, ``json`` or ``csv``.
        lateness_ms: How far the watermark stays behind the newest event time.
        idle_after_ms: Silence after which a partition counts as idle; None: never.
        partitions: Partitions of the arc; None: as many as the topic has.
        event_time: The expression of the arc's hidden event time, over the declared fields; None
            if a declared field is the event time.
        rekey: Whether records are first exchanged by identity.
        start: Where a first run begins: ``earliest``, ``latest`` or a record timestamp in ms.
        max_ahead_ms: How far an event time may be after its record's timestamp; None: any counts.
        on_spark: Whether a job on Spark ingests it.
    """

    arc: Arc
    topic: str
    envelope: str
    format: str
    lateness_ms: int
    idle_after_ms: int | None
    partitions: int | None
    event_time: str | None = None
    rekey: bool = False
    start: str | int = declared.EARLIEST
    max_ahead_ms: int | None = MAX_AHEAD_MS
    on_spark: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it is the arc of another network, and is read where it is.

        One ingest task then maps the epochs of that network to epochs of this one, and writes no
        revisions.
        """
        return self.envelope == declared.BOUND

    @cached_property
    def bound_to(self) -> tuple[str, str]:
        """The network that a bound source belongs to, and the arc that it is there."""
        found = names.parse_arc_topic(self.topic)
        assert found is not None, self.topic  # the compiler has checked it
        return found

    @property
    def where(self) -> str:
        """A bound source's arc and network, as text."""
        network, arc = self.bound_to
        return f"arc {arc!r} of network {network!r}"


@cache
def ingest_scope(source: str) -> str:
    """Return the scope of a source's ingest tasks."""
    return str(ScopeId.of_source(source))


def owning_scope(source: str) -> str:
    """Return the scope whose tasks own the identities of a rekeyed source, behind an exchange."""
    return str(ScopeId.of_owners(source))


@dataclass(frozen=True)
class Scope:
    """Boxes that run together in one process, one task per partition, in topological order.

    A scope without boxes is that of the owners of a rekeyed source (`owning_scope`). A scope on
    Spark is a job, which reports for the tasks of all partitions at once. `order` is the order in
    which an epoch runs the boxes (`propagation`).
    """

    name: str
    boxes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    on_spark: bool = False
    order: str = STATIC


@dataclass(frozen=True)
class Topology:
    """What runs: the sources, arcs, boxes and sinks of a network, and the scopes of its boxes.

    `of` makes one from what the compiler knows, `load` from a description. What follows from these
    facts (which arcs have topics, what a scope reads and writes) is computed here, once for both.

    Args:
        network: The network's name.
        sources: By name; each is ingested by a scope of its own, ``ingest.<source>``.
        arcs: By name.
        boxes: By name: their descriptions (`Box.describe`).
        reads: By box: the arcs that it reads.
        scopes: By name; those of boxes, and of the owners of rekeyed sources.
        topics: Names of the arcs that the network writes to topics.
        sinks: The users' topics that results go to.
        spark: By box on Spark: how long the state of an aggregate's window is kept after the window
            closes, ms; 0 of other boxes.
        modes: By box that has a mode: the mode.
    """

    network: str
    sources: dict[str, Source]
    arcs: dict[str, Arc]
    boxes: dict[str, Mapping[str, Any]]
    reads: dict[str, tuple[str, ...]]
    scopes: dict[str, Scope]
    topics: tuple[str, ...]
    sinks: tuple[Sink, ...] = ()
    spark: dict[str, int] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        network: str,
        *,
        sources: dict[str, Source],
        arcs: dict[str, Arc],
        boxes: dict[str, Mapping[str, Any]],
        reads: dict[str, tuple[str, ...]],
        scopes: Mapping[str, Sequence[str]],
        sinks: tuple[Sink, ...],
        spark: dict[str, int],
        modes: dict[str, str],
        every_arc: bool = False,
    ) -> Self:
        """Return the topology of these boxes.

        `scopes` gives, by name, the boxes of a scope in topological order; none for the owners of
        a rekeyed source. With `every_arc` every arc is written to a topic, not only those that
        must be. All other arguments are fields of the class.
        """
        scope_of = {box: scope for scope, members in scopes.items() for box in members}
        needed = set(arcs) if every_arc else _arcs_with_topics(arcs, sources, reads, scope_of)
        needed -= {name for name, source in sources.items() if source.is_bound}
        topics = tuple(name for name, arc in arcs.items() if name in needed and not arc.sink)
        built: dict[str, Scope] = {}
        for name, members in scopes.items():
            if members:
                built[name] = _scope(name, members, reads=reads, topics=topics, spark=spark)
            else:
                source = next(source for source in sources if owning_scope(source) == name)
                built[name] = Scope(name, (), (exchange_of(source),), (source,))
        return cls(network, sources, arcs, boxes, reads, built, topics, sinks, spark, modes)

    @classmethod
    def load(cls, description: Mapping[str, Any]) -> Self:
        """Return the topology of a description.

        A description has arcs, boxes and the fields of an arc in alphabetical order: the wire order
        is in the schema of an arc's records (`Plan.written`).
        """
        arcs = {name: _arc(name, each) for name, each in description["arcs"].items()}
        return cls.of(
            description["network"],
            sources={
                name: _source(arcs[name], each) for name, each in description["sources"].items()
            },
            arcs=arcs,
            boxes=description["boxes"],
            reads={name: described_inputs(each) for name, each in description["boxes"].items()},
            scopes=description["scopes"],
            sinks=tuple(
                Sink(each["arc"], each["topic"], each["envelope"], each["format"])
                for each in description["sinks"]
            ),
            spark=description.get("spark", {}),
            modes=description["modes"],
        )

    def scope_of(self, arc: str) -> str:
        """Return the scope that writes an arc; for a source it is ``ingest.<source>``.

        For a rekeyed source that scope writes the exchange, and ``<source>-owner`` writes the arc.
        """
        if arc in self.sources and self.sources[arc].rekey:
            return owning_scope(arc)
        if read_by(arc) in self.sources:
            return ingest_scope(read_by(arc))
        return self._scope_of_box[arc]

    @cached_property
    def _scope_of_box(self) -> dict[str, str]:
        return {box: scope.name for scope in self.scopes.values() for box in scope.boxes}

    @cached_property
    def written_by(self) -> dict[str, list[str]]:
        """By scope, or ``ingest.<source>``: the arcs with topics that it writes."""
        found: dict[str, list[str]] = {}
        for arc in self.topics:
            found.setdefault(self.scope_of(arc), []).append(arc)
        return found

    @cached_property
    def bound(self) -> dict[str, str]:
        """By bound source: the topic of its arc, which belongs to another network."""
        return {name: source.topic for name, source in self.sources.items() if source.is_bound}

    @cached_property
    def upstreams(self) -> dict[str, list[Source]]:
        """By network upstream: the sources that are bound to arcs of it, in order."""
        found: dict[str, list[Source]] = {}
        for name in self.bound:
            source = self.sources[name]
            found.setdefault(source.bound_to[0], []).append(source)
        return found

    @property
    def own_sources(self) -> dict[str, Source]:
        """The sources that are no arcs of other networks."""
        return {n: source for n, source in self.sources.items() if n not in self.bound}

    @cached_property
    def sources_of(self) -> dict[str, tuple[str, ...]]:
        """By arc: the sources that it comes from, in order."""
        return sources_by_arc(self.arcs, self.reads)

    def sources_behind(self, scope: str) -> tuple[str, ...]:
        """Return the sources that the inputs of a scope come from, in order."""
        inputs = self.scopes[scope].inputs
        return tuple(dict.fromkeys(s for arc in inputs for s in self.sources_of[arc]))

    def sources_beside(self, arc: str) -> frozenset[str]:
        """Return the sources of an arc, and those whose tuples meet its tuples further down."""
        own = set(self.sources_of[arc])
        return frozenset(chain.from_iterable(s for s in self.sources_of.values() if own & set(s)))

    def boxes_above(self, arc: str) -> frozenset[str]:
        """Return the boxes that an arc comes from: its own, and those above."""
        above = frozenset[str]().union(*map(self.boxes_above, self.reads.get(arc, ())))
        return above | {arc} if arc in self.boxes else above

    @cached_property
    def moved(self) -> frozenset[str]:
        """The arcs downstream of a map that replaces the event time, its own arc among them."""
        known: dict[str, bool] = {}

        def is_moved(arc: str) -> bool:
            if arc not in known:
                replaces = self.arcs[arc].event_time in self.boxes.get(arc, {}).get("map", ())
                known[arc] = replaces or any(map(is_moved, self.reads.get(arc, ())))
            return known[arc]

        return frozenset(filter(is_moved, self.arcs))

    def owned(self, scope: str) -> Source | None:
        """Return the source whose identities the tasks of a scope own; None if they run boxes."""
        owner = self.scopes[scope]
        return None if owner.boxes else self.sources[owner.outputs[0]]

    def readers(self, arc: str) -> list[str]:
        """Return the scopes that read an arc's topic."""
        return [scope.name for scope in self.scopes.values() if arc in scope.inputs]

    def sinks_of(self, arc: str) -> list[Sink]:
        """Return the sinks that an arc's revisions go to."""
        return [sink for sink in self.sinks if sink.arc == arc]

    def emitted(self, scope: Scope) -> list[str]:
        """Return the arcs of a scope that are written to a topic: their own, or a sink's."""
        with_sinks = {sink.arc for sink in self.sinks}
        return [box for box in scope.boxes if box in scope.outputs or box in with_sinks]

    def sunk(self, scope: Scope) -> list[str]:
        """Return the arcs of a scope that go to sinks."""
        return [arc for arc in self.emitted(scope) if self.sinks_of(arc)]

    def sunk_without_history(self, scope: Scope) -> list[str]:
        """Return the arcs of a scope that go to sinks, and keep no history of their own."""
        return [arc for arc in self.sunk(scope) if not self.arcs[arc].is_connection_point]

    def closes_windows(self, scope: str) -> bool:
        """Whether windows of a scope may close in an epoch without input."""
        return any(box in self.modes for box in self.scopes[scope].boxes)

    def keeps_back(self, scope: str) -> bool:
        """Whether a box of a scope keeps revisions back."""
        return any("kept_back" in self.boxes[box] for box in self.scopes[scope].boxes)

    @property
    def all_scopes(self) -> list[str]:
        """The scopes of sources, and then all others."""
        return [*map(ingest_scope, self.sources), *self.scopes]

    @cached_property
    def jobs(self) -> dict[str, Scope]:
        """The jobs on Spark by name: scopes of boxes, and those of sources that it ingests."""
        ingest = {
            ingest_scope(name): Scope(ingest_scope(name), (), (), (name,), on_spark=True)
            for name, source in self.sources.items()
            if source.on_spark
        }
        return ingest | {name: scope for name, scope in self.scopes.items() if scope.on_spark}

    def is_written_by_job(self, arc: str) -> bool:
        """Whether a job on Spark writes an arc, perhaps in exact copies."""
        return self.scope_of(arc) in self.jobs

    @property
    def process_scopes(self) -> list[str]:
        """The scopes that Errata's processes run: all but jobs on Spark."""
        return [name for name in self.all_scopes if name not in self.jobs]


def sources_by_arc(
    arcs: Iterable[str], reads: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return, for each arc, the sources that it comes from, in order.

    Args:
        arcs: Names of arcs.
        reads: By box: the arcs that it reads.
    """
    known: dict[str, tuple[str, ...]] = {}

    def sources(arc: str) -> tuple[str, ...]:
        if arc not in known:
            above = [source for read in reads.get(arc, ()) for source in sources(read)]
            # an arc that no box writes is that of a source, or a source's exchange
            known[arc] = tuple(dict.fromkeys(above)) or (read_by(arc),)
        return known[arc]

    return {arc: sources(arc) for arc in arcs}


def _arcs_with_topics(
    arcs: Mapping[str, Arc],
    sources: Collection[str],
    reads: Mapping[str, Iterable[str]],
    scope_of: Mapping[str, str],
) -> set[str]:
    """Return the arcs that need a topic.

    They are those of sources and connection points, those that another scope reads, and those that
    no box reads: a network's results. Those of bound sources have one, but not of this network.
    """
    read = {arc for above in reads.values() for arc in above}
    crossing = {
        arc for box, above in reads.items() for arc in above if scope_of.get(arc) != scope_of[box]
    }
    kept = {name for name, arc in arcs.items() if arc.is_connection_point}
    return {*sources, *kept, *crossing} | (arcs.keys() - read)


def _scope(
    name: str,
    boxes: Sequence[str],
    *,
    reads: Mapping[str, Sequence[str]],
    topics: Collection[str],
    spark: Collection[str],
) -> Scope:
    """Return a scope of boxes."""
    outside = [arc for box in boxes for arc in reads[box] if arc not in boxes]
    return Scope(
        name,
        tuple(boxes),
        inputs=tuple(dict.fromkeys(outside)),
        outputs=tuple(box for box in boxes if box in topics),
        on_spark=any(box in spark for box in boxes),
        order=choose_order(Graph.of({box: reads[box] for box in boxes})),
    )


def _arc(name: str, described: Mapping[str, Any]) -> Arc:
    parsed = ArcName.parse(name)
    return Arc(
        name,
        {field: FieldType.parse(kind) for field, kind in described["fields"].items()},
        identity=tuple(described["identity"]),
        event_time=described["event_time"],
        partition_by=tuple(described["partition_by"]),
        event_time_shift_ms=described.get(
            "event_time_shift_ms", usual_shift_ms(described["event_time"])
        ),
        keep_ms=described["keep_ms"],
        exchange=parsed.is_exchange,
        sink=parsed.is_sink,
    )


def _source(arc: Arc, described: Mapping[str, Any]) -> Source:
    return Source(
        arc,
        described["topic"],
        envelope=described["envelope"],
        format=described["format"],
        lateness_ms=described["lateness_ms"],
        idle_after_ms=described["idle_after_ms"],
        partitions=None,
        event_time=described["event_time"],
        rekey=described["rekey"],
        max_ahead_ms=described.get("max_ahead_ms", MAX_AHEAD_MS),
        on_spark=described.get("on_spark", False),
    )
