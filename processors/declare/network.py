"""What a user declares: a network of boxes, and the arcs between them as streams.

Declaring never runs anything, so a network can be checked, drawn and explained. `compile` turns it
into a plan that runs, or lists every fault. A box that reads one arc is declared on that `Stream`,
a box that reads several on the `Network`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn

from errata.processors.declare.declarations import (
    EARLIEST,
    MAX_AHEAD,
    NAME,
    REST,
    Aggregate,
    Declaration,
    Distinct,
    Duration,
    Iterate,
    Join,
    Lag,
    Lookup,
    Map,
    Sink,
    Source,
    Union,
    Where,
    names,
)
from errata.processors.declare.faults import Fault, NetworkError, Place
from errata.processors.declare.options import mistaken
from errata.processors.windows.time_windows import AnyWindow
from errata.schemas.arc import HIDDEN_PREFIX

Significance = Mapping[str, int | float | Decimal | str]
"""By result, how far an emitted value may be from the exact one: a number; a share of the emitted
value, ``"0.1%"``; or for timestamps a duration. A revision is kept back while all results stay
within their thresholds; results without one, and null, have to be equal.
"""


@dataclass(frozen=True)
class Stream:
    """The arc that leaves a box; further boxes are declared on it."""

    network: Network
    name: str

    def where(
        self,
        name: str,
        predicate: str,
        *,
        scope: str | None = None,
        place: str | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
    ) -> Stream:
        """Pass only the tuples for which the predicate is true (not null)."""
        return self._declare(
            Where,
            name,
            predicate=predicate,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def route(
        self,
        *,
        scope: str | None = None,
        place: str | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        fields: Mapping[str, str] | None = None,
        **outputs: str,
    ) -> tuple[Stream, ...]:
        """Pass each tuple to the first output whose predicate is true for it.

        Args:
            scope: The scope whose process runs it.
            place: See `aggregate`.
            keep: Makes every output a connection point.
            significance: See `Significance`.
            fields: Outputs by name, for names that are also options.
            outputs: Predicate by name of the output's arc, in order; the last may be ``"rest"``:
                all tuples that no other output took. Tuples that no output takes are dropped.

        Returns:
            The outputs, in order.
        """
        predicates = self.network.results("route", fields, outputs, method=self.route)
        streams, earlier = [], ()  # type: tuple[list[Stream], tuple[str, ...]]
        for name, predicate in predicates.items():
            if predicate == REST and len(earlier) + 1 < len(predicates):
                self.network.refuse(
                    name, "'rest' as the last output", "an output after it", "move it to the end"
                )
            streams.append(
                self._declare(
                    Where,
                    name,
                    predicate="true" if predicate == REST else predicate,
                    earlier=earlier,
                    is_route=True,
                    scope=scope,
                    place_of_work=place,
                    keep=keep,
                    significance=significance,
                )
            )
            earlier += (predicate,)
        return tuple(streams)

    def map(
        self,
        name: str,
        *,
        scope: str | None = None,
        place: str | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        partitions: int | None = None,
        fields: Mapping[str, Any] | None = None,
        **expressions: Any,
    ) -> Stream:
        """Keep the fields; add or replace some by expressions over the input's fields.

        A map may replace the event time, or a field that its input is partitioned by; then its
        tuples are repartitioned.

        Args:
            name: Name of the box and of its arc.
            scope: The scope whose process runs the box; default: its input's.
            place: See `aggregate`.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
            partitions: Partitions of its arc if it repartitions; default: its input's.
            fields: Expressions by name, for names that are also options.
            expressions: SQL expression, or `python` function, by name of the resulting field.
        """
        return self._declare(
            Map,
            name,
            expressions=self.network.results(name, fields, expressions, method=self.map),
            partitions=partitions,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def lag(
        self,
        name: str,
        *,
        by: Sequence[str],
        offset: int = 1,
        scope: str | None = None,
        place: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        fields: Mapping[str, Any] | None = None,
        **results: Any,
    ) -> Stream:
        """Add to each tuple values of an earlier tuple of its group, as SQL's ``lag``.

        Tuples keep their fields, identity and event time. They are ordered by event time, then by
        identity. A revised tuple revises its own result and that of the tuple that it precedes.

        Args:
            name: Name of the box and of its arc.
            by: Group fields; none: one group.
            offset: How many rows back the earlier tuple is.
            scope: The scope whose process runs the box; default: its input's.
            place: See `aggregate`.
            partitions: Partitions of its arc if groups are repartitioned; default: its input's.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
            fields: Results by name, for names that are also options.
            results: SQL expression over the earlier tuple, by name of the resulting field, as
                ``previous="price"``; null where there is no earlier tuple.
        """
        return self._declare(
            Lag,
            name,
            by=names(by),
            offset=offset,
            expressions=self.network.results(name, fields, results, method=self.lag),
            partitions=partitions,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def distinct(
        self,
        name: str,
        *,
        by: Sequence[str],
        scope: str | None = None,
        place: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
    ) -> Stream:
        """Emit one tuple for each combination of values, as SQL's ``SELECT DISTINCT``.

        A tuple has the fields of `by`, which are its identity, and the event time of the earliest
        input tuple with these values. It is deleted when the last such input tuple is.

        Args:
            name: Name of the box and of its arc.
            by: The fields; at least one.
            scope: The scope whose process runs the box; default: its input's.
            place: See `aggregate`.
            partitions: Partitions of its arc if equal tuples are repartitioned; its input's when
                not given.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
        """
        return self._declare(
            Distinct,
            name,
            by=names(by),
            partitions=partitions,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def lookup(
        self,
        name: str,
        other: Stream,
        *,
        on: Mapping[str, str] | Sequence[str],
        alias: str | None = None,
        how: str = "left",
        scope: str | None = None,
        place: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        fields: Mapping[str, Any] | None = None,
        **expressions: Any,
    ) -> Stream:
        """Enrich each tuple with the one tuple of another arc whose identity it holds.

        The result has this arc's identity, fields and event time (a lookup does not move a tuple in
        time); the named results are added, or replace fields. Either side may be revised at any
        time.

        Args:
            name: Name of the box and of its arc.
            other: The arc to look up in.
            on: The matched field of the other arc, by field of this arc; or a list of fields that
                have the same name in both. All identity fields of the other arc must be matched.
                Null equals nothing.
            alias: The other arc's name in expressions; default: its own.
            how: ``left``, or ``inner``: tuples without a match are dropped.
            scope: The scope whose process runs the box.
            place: See `aggregate`.
            partitions: Partitions of its arc if a side is repartitioned; default: as many as the
                wider side has.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
            fields: Results by name, for names that are also options.
            expressions: SQL expression over both sides, by name of the resulting field, as
                ``symbol="coalesce(renames.new, symbol)"``; this arc's fields need no alias.
        """
        other_name = arc_of(other)
        alias = other_name if alias is None else alias
        if not NAME.fullmatch(alias):
            need = f"a name for {other_name!r} of letters, digits and _"
            self.network.refuse(name, need, repr(alias), 'set alias="..."')
        matched = on if isinstance(on, Mapping) else {field: field for field in names(on)}
        return self._declare(
            Lookup,
            name,
            other=other_name,
            alias=alias,
            on=dict(matched),
            how=how,
            expressions=self.network.results(name, fields, expressions, method=self.lookup),
            partitions=partitions,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def sink(self, topic: str, *, envelope: str = "native", format: str = "avro") -> None:
        """Write this arc's revisions to a user's topic, in the transaction that emits them.

        Args:
            topic: The topic; if missing, it is created with as many partitions as the arc has.
            envelope: ``native``; ``debezium``: before, after, op, and a tombstone after a delete;
                or ``upsert``: the tuple by its identity, no value for a delete.
            format: ``avro`` (with a schema id in front) or ``json``.
        """
        self.network.check_arc(self.name, self.name)
        sink = Sink(self.name, topic, envelope, format, Place.of_caller())
        self.network.sinks.append(sink)

    def aggregate(
        self,
        name: str,
        *,
        by: Sequence[str] = (),
        window: AnyWindow | None,
        mode: str = "adaptive",
        emit: str = "on_close",
        order_by: Sequence[str] = (),
        place: str | None = None,
        horizon: Duration | None = None,
        scope: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        fields: Mapping[str, Any] | None = None,
        **results: Any,
    ) -> Stream:
        """Aggregate windows by group.

        A result's fields are the group's, ``window_start``, ``window_end`` (exclusive) and the
        named results; its identity is group and window start, its event time ``window_end`` - 1 ms.

        Args:
            name: Name of the box and of its arc.
            by: Group fields; none: one group.
            window: `hopping`, `tumbling` or `sliding`; None: a group's whole history, whose result
                has no window and an event time at the end of time. With ``rows=``, windows count
                tuples in the order of event time and identity. For ``hopping`` and ``tumbling``
                rows, ``window_start`` and ``window_end`` are numbers, from 0, and the event time is
                that of the last tuple. For ``sliding`` rows, a result has the identity and the
                event time of the last tuple of its window.
            mode: How closed windows are revised: ``upstream``, ``downstream``, ``resident`` (all
                windows are kept in memory) or ``adaptive`` (upstream or downstream, whichever is
                cheaper for each window, if both are legal).
            emit: ``on_close``: a result appears when the watermark passes the window's end; that of
                a window of rows, when it is full and the watermark passes its last tuple.
                ``on_update``: a result appears, and is revised, in every epoch that changes it.
            order_by: The order for ``first`` and ``last``, ``"field"`` or ``"field desc"``;
                default: event time. Ties are broken by identity.
            place: ``"spark"``: a Structured Streaming job runs the box, and keeps its state in
                Spark's store. ``"process"``: Errata's processes run it. Default: that of the
                network.
            horizon: On Spark: how long a window's state is kept after the window closes; a window
                revised later is replayed. Default: a day, or as long as its tuples may be revised
                if that is less.
            scope: The scope whose process runs the box; default: its input's.
            partitions: Partitions of its arc if groups are repartitioned; default: its input's.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
            fields: Results by name, for names that are also options.
            results: Results by name, e.g. ``vwap="sum(price * size) / sum(size)"``, or a
                `Compensating` or `CompensatingByValue` function.
        """
        return self._declare(
            Aggregate,
            name,
            by=names(by),
            window=window,
            mode=mode,
            emit=emit,
            results=self.network.results(name, fields, results, method=self.aggregate),
            order_by=names(order_by),
            partitions=partitions,
            horizon=horizon,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def _declare(self, kind: type[Declaration], name: str, **arguments: Any) -> Stream:
        return self.network.declare(kind, name, input=self.name, **arguments)


def arc_of(stream: Stream | str) -> str:
    """Return the name of an arc, from its stream or from the name itself."""
    return stream.name if isinstance(stream, Stream) else str(stream)


_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RESERVED_ARCS = {"progress", "plan"}


@dataclass
class Network:
    """A query network of boxes, as in Borealis.

    Args:
        name: Prefix of all its topics: letters, digits, ``_`` and ``-``.
        place: Where its boxes run that declare no ``place=``: ``"spark"``, or Errata's processes.

    Example:
        >>> from errata.processors.windows.time_windows import hopping
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
    sinks: list[Sink] = field(default_factory=list)
    place: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NETWORK_NAME.fullmatch(self.name):
            need = "a name of letters, digits, _ and -"
            self.refuse(str(self.name), need, repr(self.name), "rename it")

    def source(
        self,
        name: str,
        *,
        event_time: str | None = None,
        fields: Mapping[str, Any] | None = None,
        identity: Sequence[str] | None = None,
        topic: str | None = None,
        envelope: str = "native",
        format: str = "avro",
        partition_by: Sequence[str] | None = None,
        partitions: int | None = None,
        lateness: Duration = 0,
        idle_after: Duration | None = None,
        max_ahead: Duration | None = MAX_AHEAD,
        keep: Duration | None = None,
        rekey: bool = False,
        start: str | int = EARLIEST,
        place: str | None = None,
    ) -> Stream:
        """Declare a user's topic as the start of an arc.

        Args:
            name: Name of the source and of its arc.
            event_time: The timestamp field that holds the event time, or an expression over the
                fields that computes it. Only envelope ``arc`` has a default: that of the arc.
            fields: Type by field name, e.g. ``{"price": "decimal(9,2)", "note": "string?"}``;
                default: those of the topic's latest value schema.
            identity: Fields that name a tuple; all records of an identity must be in one partition
                of the topic, unless `rekey` is set. Default: those of the topic's latest
                key schema.
            topic: The user's topic; default: the source's name.
            envelope: Meaning of a record. ``append``: a new tuple. ``upsert``: the new value of its
                identity; no value deletes it. ``debezium``: before, after and op as Debezium's
                connectors write them. ``native``: op, before, after. ``arc``: the topic is an arc
                of another network, ``<network>.<arc>``. It is read where it is; fields, identity,
                event time and partitioning are those that it has there, unless fewer fields are
                declared.
            format: ``avro`` and ``protobuf`` (with a schema id in front), ``json`` (one object per
                record) or ``csv`` (one line per record).
            partition_by: Fields whose hash is the arc's partition. Default: those by which every
                downstream aggregate groups.
            partitions: Partitions of the arc; default: as many as the topic has.
            lateness: How far the watermark stays behind the newest event time.
            idle_after: Silence after which a partition no longer holds the watermark back.
            max_ahead: How far an event time may be after the time at which its record was written;
                a record further ahead is a dead letter, since it would move the watermark there.
                None: any event time counts.
            keep: How far behind the watermark tuples may still be revised; makes the arc a
                connection point.
            rekey: Whether records of an identity may lie in several partitions of the topic; they
                then go through an exchange first.
            start: Where a first run begins to read the topic: ``earliest``, ``latest``, or a record
                timestamp, as ms or ISO-8601 text.
            place: ``"spark"``: a Structured Streaming job ingests the topic (`errata spark`), and
                keeps its tuples in a checkpoint. ``"process"``: Errata's processes do. Default: as
                the network declares it. The arc of another network is read where it is.
        """
        return self.declare(
            Source,
            name,
            topic=name if topic is None else topic,
            envelope=envelope,
            format=format,
            fields=None if fields is None else dict(fields),
            identity=None if identity is None else names(identity),
            event_time=event_time,
            partition_by=None if partition_by is None else names(partition_by),
            partitions=partitions,
            lateness=lateness,
            idle_after=idle_after,
            max_ahead=max_ahead,
            keep=keep,
            rekey=rekey,
            start=start,
            place_of_work=place,
        )

    def union(
        self,
        name: str,
        *streams: Stream,
        tag: str = "source",
        scope: str | None = None,
        place: str | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
    ) -> Stream:
        """Merge all tuples of several arcs; they must have the same fields.

        Args:
            name: Name of the box and of its arc.
            streams: Two arcs or more, with the same fields, event time and partitioning.
            tag: Field added to the identity, with the name of the arc that a tuple comes from. It
                is added if two arcs may hold the same identity, so not for outputs of one route.
            scope: The scope whose process runs the box.
            place: See `Stream.aggregate`.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
        """
        inputs = tuple(map(arc_of, streams))
        unknown = [s for s in inputs if s not in self.declarations]
        if len(set(inputs)) < max(2, len(inputs)) or unknown:
            actual = ", ".join(map(repr, inputs)) or "none"
            self.refuse(
                name,
                "two or more different arcs of this network",
                actual,
                "pass two or more, each once",
            )
        return self.declare(
            Union,
            name,
            input=inputs[0],
            inputs=inputs,
            tag=tag,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def join(
        self,
        name: str,
        streams: Mapping[str, Stream],
        *,
        on: Sequence[str],
        how: str = "inner",
        scope: str | None = None,
        place: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
        fields: Mapping[str, Any] | None = None,
        **expressions: Any,
    ) -> Stream:
        """Pair the tuples of two arcs that have equal values in some fields.

        A pair's fields are those of `on`, the rest of each side's identity as ``<alias>_<field>``,
        the event time (the later of both), and the named results; its identity is that of both.
        Either side may be revised at any time.

        Args:
            name: Name of the box and of its arc.
            streams: The left and the right arc, by their aliases in expressions.
            on: Fields of both sides; null equals nothing.
            how: ``inner``, or ``left``: left tuples without a match stay, with nulls for the right.
            scope: The scope whose process runs the box.
            place: See `Stream.aggregate`.
            partitions: Partitions of its arc if a side is repartitioned; default: as many as the
                wider side has.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
            fields: Results by name, for names that are also options.
            expressions: SQL expression over both sides, by name of the resulting field, as
                ``r="n.x / d.x"``; fields of one side only, and those of `on`, need no alias.
        """
        inputs = tuple(map(arc_of, streams.values()))
        aliases = tuple(streams)
        invalid = [a for a in aliases if not isinstance(a, str) or not NAME.fullmatch(a)]
        if len(inputs) != 2 or invalid or any(s not in self.declarations for s in inputs):
            actual = ", ".join(f"{a!r}: {s!r}" for a, s in zip(aliases, inputs, strict=True))
            need = "two arcs of this network, each with an alias"
            self.refuse(name, need, actual or "none", 'write {"n": one, "d": other}')
        return self.declare(
            Join,
            name,
            input=inputs[0],
            inputs=inputs,
            aliases=aliases,
            on=names(on),
            how=how,
            expressions=self.results(name, fields, expressions, method=self.join),
            partitions=partitions,
            scope=scope,
            place_of_work=place,
            keep=keep,
            significance=significance,
        )

    def iterate(
        self,
        name: str,
        start: Stream,
        body: Callable[[Stream], Stream],
        *,
        rounds: int = 100,
        scope: str | None = None,
        place: str | None = None,
        keep: Duration | None = None,
        significance: Significance | None = None,
    ) -> Stream:
        """Apply a body of boxes to an arc repeatedly, until nothing changes.

        X(0) is the content of `start`, X(k + 1) = body(X(k)); the arc holds the fixed point. The
        loop runs on one partition: iterate over small relations, and look up in their result.

        Args:
            name: Name of the loop and of its arc; within the loop, of the arc that enters a round.
            start: The arc to start with.
            body: Called once, now. It declares the boxes of a round on the arc that it is passed,
                and returns the box whose arc enters the next round, with the identity, the event
                time and the fields of `start`. It may use filters, routes, maps, unions, joins,
                lookups and aggregates of whole histories with ``on_update``. They may read arcs
                from outside; boxes outside can't read theirs.
            rounds: How often the body may change a tuple. A tuple that would change again is
                dropped and becomes a dead letter; it returns when a revision lets it settle.
            scope: The scope whose process runs the loop.
            place: See `Stream.aggregate`.
            keep: Makes the arc a connection point.
            significance: See `Significance`.
        """
        loop = {"input": arc_of(start), "rounds": rounds, "scope": scope}
        loop |= {"place_of_work": place, "keep": keep, "significance": significance}
        outside, sinks = self.declarations, self.sinks
        self.declarations, self.sinks = dict(outside), []
        try:
            returned = body(self.declare(Iterate, name, **loop))
        finally:
            inside, inner_sinks = self.declarations, self.sinks
            self.declarations, self.sinks = outside, sinks
        boxes = tuple(box for n, box in inside.items() if n not in outside and n != name)
        arcs = {name, *(box.name for box in boxes)}
        if not isinstance(returned, Stream) or returned.name not in arcs:
            need = "a body that returns an arc of the loop, which enters the next round"
            actual = repr(returned.name) if isinstance(returned, Stream) else repr(returned)
            self.refuse(name, need, actual, "return the last box of the round")
        return self.declare(
            Iterate, name, **loop, body=boxes, gives=returned.name, sinks=tuple(inner_sinks)
        )

    def declare(self, kind: type[Declaration], name: str, **arguments: Any) -> Stream:
        """Add a box of a kind, with its arguments; refuse bad or taken names and unknown inputs."""
        if arguments.get("place_of_work") is None:
            arguments["place_of_work"] = self.place
        box = kind(name=name, place=Place.of_caller(), **arguments)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self.refuse(str(name), "a name of letters, digits and _", repr(name), "rename it")
        if name in _RESERVED_ARCS or name.startswith(HIDDEN_PREFIX):
            self.refuse(name, "a name that is not reserved", repr(name), "rename it")
        if name in self.declarations:
            actual = f"another box of that name at {self.declarations[name].place}"
            self.refuse(name, "a unique name", actual, "rename one of them")
        if name in self._inside:
            actual = f"a box of that name in loop {self._inside[name]!r}"
            self.refuse(name, "a unique name", actual, "rename one of them")
        for arc in box.reads:
            self.check_arc(name, arc)
        self.declarations[name] = box
        return Stream(self, name)

    def results(
        self,
        box: str,
        fields: Mapping[str, Any] | None,
        named: Mapping[str, Any],
        *,
        method: Callable[..., Any],
    ) -> dict[str, Any]:
        """Return a box's results, from ``fields=`` and keywords; refuse none and duplicates.

        Args:
            box: The box.
            fields: What ``fields=`` names.
            named: What other keywords name.
            method: Declares the box.
        """
        if why := mistaken(named, method):
            self.refuse(box, *why)
        duplicates = set(fields or ()) & set(named)
        if duplicates:
            actual = f"{sorted(duplicates)} both in fields= and as a keyword"
            self.refuse(box, "each name once", actual, "drop one of them")
        results = {**(fields or {}), **named}
        if not results:
            self.refuse(box, "at least one named result", "none", "add one, such as x='...'")
        return results

    def check_arc(self, box: str, arc: str) -> None:
        """Refuse a box that reads an unknown arc, or one that is visible only in a loop."""
        if arc in self.declarations:
            return
        loop = self._inside.get(arc)
        if loop is None:
            self.refuse(
                box, "an arc of this network", repr(arc), "read an arc that this network declares"
            )
        actual = f"{arc!r}, which is visible only in loop {loop!r}"
        self.refuse(
            box,
            "an arc that is visible outside the loop",
            actual,
            f"read {loop!r}, the result of the loop",
        )

    @property
    def _inside(self) -> dict[str, str]:
        """The loop of each box within a loop, by name of the box."""
        loops = [box for box in self.declarations.values() if isinstance(box, Iterate)]
        return {box.name: loop.name for loop in loops for box in loop.body}

    def refuse(self, box: str, need: str, found: str, remedy: str) -> NoReturn:
        """Raise a `NetworkError` with one fault, at the user's line."""
        fault = Fault(box, need, found, remedy, Place.of_caller())
        raise NetworkError(str(self.name), [fault])
