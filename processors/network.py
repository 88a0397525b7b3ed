"""What a user declares: a network of boxes and the arcs between them.

Declaring never runs anything, so a network can be checked, drawn and explained. `processors.plan`
turns it into something that runs, or says everything that keeps it from running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from processors.faults import Fault, NetworkError, Place
from processors.windows import Hopping
from schemas.arc import HIDDEN_PREFIX

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RESERVED_ARCS = {"progress", "plan"}

Duration = str | int


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What every box has: a name, which its output arc shares, and where it was declared."""

    name: str
    place: Place
    input: str | None = None
    scope: str | None = None
    keep: Duration | None = None


@dataclass(frozen=True, kw_only=True)
class Source(Declaration):
    """A user's topic, taken in by ingest (DESIGN 4)."""

    topic: str
    envelope: str
    format: str
    fields: Mapping[str, Any]
    identity: Sequence[str]
    event_time: str
    partition_by: Sequence[str] | None
    partitions: int | None
    lateness: Duration
    idle_after: Duration | None


@dataclass(frozen=True, kw_only=True)
class Where(Declaration):
    """Filter: passes the tuples for which a predicate is true."""

    predicate: str


@dataclass(frozen=True, kw_only=True)
class Map(Declaration):
    """Keeps the fields; adds some, or replaces them."""

    expressions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Aggregate(Declaration):
    """Windows by group."""

    by: Sequence[str]
    window: Hopping
    mode: str
    emit: str
    place_of_work: str | None
    results: Mapping[str, str]


@dataclass
class Network:
    """A query network of boxes, as in Borealis.

    Args:
        name: Prefix of all its topics: letters, digits, ``_`` and ``-``.

    Example:
        >>> from processors.windows import hopping
        >>> net = Network("tape")
        >>> trades = net.source("trades", fields={"key": "string", "at": "timestamp-millis",
        ...     "price": "decimal(9,2)"}, identity=["key"], event_time="at", keep="1d")
        >>> sums = trades.aggregate("sums", by=[], window=hopping("30m", every="20m"),
        ...     total="sum(price)")
        >>> list(net.declarations)
        ['trades', 'sums']
    """

    name: str
    declarations: dict[str, Declaration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NETWORK_NAME.fullmatch(self.name):
            self._refuse(
                str(self.name), "a name of letters, digits, _ and -", repr(self.name), "rename it"
            )

    def _refuse(self, box: str, need: str, found: str, remedy: str) -> None:
        fault = Fault(box, need, found, remedy, Place.of_caller())
        raise NetworkError(str(self.name), [fault])

    def source(
        self,
        name: str,
        *,
        fields: Mapping[str, Any],
        identity: Sequence[str],
        event_time: str,
        topic: str | None = None,
        envelope: str = "native",
        format: str = "avro",
        partition_by: Sequence[str] | None = None,
        partitions: int | None = None,
        lateness: Duration = 0,
        idle_after: Duration | None = None,
        keep: Duration | None = None,
    ) -> Stream:
        """Declare a user's topic as the start of an arc.

        Args:
            name: Name of the source and of its arc.
            fields: Type by field name, e.g. ``{"price": "decimal(9,2)", "note": "string?"}``.
            identity: Fields that name a tuple; all records of an identity must be in one partition
                of the topic.
            event_time: The timestamp field that says when a tuple happened.
            topic: The user's topic; the source's name when not given.
            envelope: What a record is; ``native``: op, before, after.
            format: ``avro`` (with a schema id in front) or ``json`` (one object a record).
            partition_by: Fields whose hash is the arc's partition. Not given: those that every
                aggregate behind groups by.
            partitions: Partitions of the arc; as many as the topic has when not given.
            lateness: How far the watermark stays behind the newest event time.
            idle_after: Silence after which a partition no longer holds the watermark back.
            keep: How far behind the watermark tuples may still be revised; makes the arc a
                connection point.
        """
        return self._add(
            Source(
                name=name,
                place=Place.of_caller(),
                topic=name if topic is None else topic,
                envelope=envelope,
                format=format,
                fields=dict(fields),
                identity=_names(identity),
                event_time=event_time,
                partition_by=None if partition_by is None else _names(partition_by),
                partitions=partitions,
                lateness=lateness,
                idle_after=idle_after,
                keep=keep,
            )
        )

    def _add(self, declaration: Declaration) -> Stream:
        name = declaration.name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self._refuse(str(name), "a name of letters, digits and _", repr(name), "rename it")
        if name in _RESERVED_ARCS or name.startswith(HIDDEN_PREFIX):
            self._refuse(name, "a name that is not reserved", repr(name), "rename it")
        if name in self.declarations:
            self._refuse(
                name,
                "a name of its own",
                f"another box of that name at {self.declarations[name].place}",
                "rename one of them",
            )
        self.declarations[name] = declaration
        return Stream(self, name)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True)
class Stream:
    """The arc that leaves a box; further boxes are declared on it."""

    network: Network
    name: str

    def where(
        self, name: str, predicate: str, *, scope: str | None = None, keep: Duration | None = None
    ) -> Stream:
        """Pass only the tuples for which the predicate is true (not null)."""
        return self.network._add(
            Where(
                name=name,
                place=Place.of_caller(),
                input=self.name,
                predicate=predicate,
                scope=scope,
                keep=keep,
            )
        )

    def map(
        self,
        name: str,
        *,
        scope: str | None = None,
        keep: Duration | None = None,
        fields: Mapping[str, str] | None = None,
        **expressions: str,
    ) -> Stream:
        """Keep the fields; add those named, or replace them, by expressions over the input's."""
        return self.network._add(
            Map(
                name=name,
                place=Place.of_caller(),
                input=self.name,
                expressions=self._results(name, fields, expressions),
                scope=scope,
                keep=keep,
            )
        )

    def aggregate(
        self,
        name: str,
        *,
        by: Sequence[str],
        window: Hopping,
        mode: str = "adaptive",
        emit: str = "on_close",
        place: str | None = None,
        scope: str | None = None,
        keep: Duration | None = None,
        fields: Mapping[str, str] | None = None,
        **results: str,
    ) -> Stream:
        """Aggregate windows by group.

        A result's fields are the group's, ``window_start``, ``window_end`` (exclusive) and the
        named results; its identity is group and window start, its event time ``window_end`` - 1 ms.

        Args:
            name: Name of the box and of its arc.
            by: Group fields; none: one group.
            window: `hopping` or `tumbling`.
            mode: How closed windows are revised: ``upstream``, ``downstream`` or ``adaptive`` (the
                cheapest legal one).
            emit: ``on_close``: a result appears when the watermark passes the window's end.
            place: Where the work is done.
            scope: The scope whose process runs the box; its input's when not given.
            keep: Makes the arc a connection point.
            fields: Results by name, for names that are also options.
            results: Results by name, e.g. ``total="sum(price)"``.
        """
        return self.network._add(
            Aggregate(
                name=name,
                place=Place.of_caller(),
                input=self.name,
                by=_names(by),
                window=window,
                mode=mode,
                emit=emit,
                place_of_work=place,
                results=self._results(name, fields, results),
                scope=scope,
                keep=keep,
            )
        )

    def _results(
        self, box: str, fields: Mapping[str, str] | None, named: Mapping[str, str]
    ) -> dict[str, str]:
        doubles = set(fields or ()) & set(named)
        if doubles:
            self.network._refuse(
                box,
                "each name once",
                f"{sorted(doubles)} both in fields= and as a keyword",
                "drop one of them",
            )
        results = {**(fields or {}), **named}
        if not results:
            self.network._refuse(box, "at least one named result", "none", "name one, as x='...'")
        return results
