"""The arc that leaves a box, on which a user declares the boxes that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from errata.processors.declare.declarations import (
    NAME,
    REST,
    Aggregate,
    Declaration,
    Distinct,
    Duration,
    Lag,
    Lookup,
    Map,
    Sink,
    Where,
    names,
)
from errata.processors.declare.faults import Place
from errata.processors.windows.time_windows import AnyWindow

if TYPE_CHECKING:
    from errata.processors.declare.network import Network


@dataclass(frozen=True)
class Stream:
    """The arc that leaves a box; further boxes are declared on it."""

    network: Network
    name: str

    def where(
        self, name: str, predicate: str, *, scope: str | None = None, keep: Duration | None = None
    ) -> Stream:
        """Pass only the tuples for which the predicate is true (not null)."""
        return self._declare(Where, name, predicate=predicate, scope=scope, keep=keep)

    def route(
        self,
        *,
        scope: str | None = None,
        keep: Duration | None = None,
        fields: Mapping[str, str] | None = None,
        **outputs: str,
    ) -> tuple[Stream, ...]:
        """Give every tuple to the first output whose predicate is true for it.

        Args:
            scope: The scope whose process runs it.
            keep: Makes every output a connection point.
            fields: Outputs by name, for names that are also options.
            outputs: Predicate by name of the output's arc, in order; the last may be ``"rest"``:
                whatever no other one took. Tuples that none takes are left out.

        Returns:
            The outputs, in order.
        """
        predicates = self.network.results("route", fields, outputs)
        made, earlier = [], ()  # type: tuple[list[Stream], tuple[str, ...]]
        for name, predicate in predicates.items():
            if predicate == REST and len(earlier) + 1 < len(predicates):
                self.network.refuse(
                    name, "'rest' as the last output", "an output behind it", "move it"
                )
            made.append(
                self._declare(
                    Where,
                    name,
                    predicate="true" if predicate == REST else predicate,
                    earlier=earlier,
                    is_route=True,
                    scope=scope,
                    keep=keep,
                )
            )
            earlier += (predicate,)
        return tuple(made)

    def map(
        self,
        name: str,
        *,
        scope: str | None = None,
        keep: Duration | None = None,
        partitions: int | None = None,
        fields: Mapping[str, Any] | None = None,
        **expressions: Any,
    ) -> Stream:
        """Keep the fields; add those named, or replace them, by expressions over the input's.

        A map may replace the event time, or a field that its input is partitioned by; then its
        tuples are repartitioned.

        Args:
            name: Name of the box and of its arc.
            scope: The scope whose process runs the box; its input's when not given.
            keep: Makes the arc a connection point.
            partitions: Partitions of its arc if it repartitions; its input's when not given.
            fields: Expressions by name, for names that are also options.
            expressions: SQL expression, or `python` function, by name of the field it gives.
        """
        return self._declare(
            Map,
            name,
            expressions=self.network.results(name, fields, expressions),
            partitions=partitions,
            scope=scope,
            keep=keep,
        )

    def lag(
        self,
        name: str,
        *,
        by: Sequence[str],
        offset: int = 1,
        scope: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
        fields: Mapping[str, Any] | None = None,
        **results: Any,
    ) -> Stream:
        """Put beside each tuple what the one before it in its group holds, as SQL's ``lag``.

        Tuples keep their fields, identity and event time. They are in the order of event time, then
        of identity. A tuple that is revised revises itself and the one it stands before.

        Args:
            name: Name of the box and of its arc.
            by: Group fields; none: one group.
            offset: How many tuples before each the other one is.
            scope: The scope whose process runs the box; its input's when not given.
            partitions: Partitions of its arc if its groups have to be brought together from several
                partitions; its input's when not given.
            keep: Makes the arc a connection point.
            fields: Results by name, for names that are also options.
            results: SQL expression over the other tuple, by name of the field it gives, as
                ``previous="price"``; null where there is no other one.
        """
        return self._declare(
            Lag,
            name,
            by=names(by),
            offset=offset,
            expressions=self.network.results(name, fields, results),
            partitions=partitions,
            scope=scope,
            keep=keep,
        )

    def distinct(
        self,
        name: str,
        *,
        by: Sequence[str],
        scope: str | None = None,
        partitions: int | None = None,
        keep: Duration | None = None,
    ) -> Stream:
        """Have one tuple for each combination of values, as SQL's ``SELECT DISTINCT``.

        A tuple has the fields of `by`, which are its identity, and the event time of the earliest
        input tuple that has these values. It is deleted when the last of them is.

        Args:
            name: Name of the box and of its arc.
            by: The fields; at least one.
            scope: The scope whose process runs the box; its input's when not given.
            partitions: Partitions of its arc if equal tuples have to be brought together from
                several partitions; its input's when not given.
            keep: Makes the arc a connection point.
        """
        return self._declare(
            Distinct, name, by=names(by), partitions=partitions, scope=scope, keep=keep
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
        partitions: int | None = None,
        keep: Duration | None = None,
        fields: Mapping[str, Any] | None = None,
        **expressions: Any,
    ) -> Stream:
        """Give each tuple what is known about it elsewhere: the one tuple that it names there.

        The result has this arc's identity, fields and event time (a lookup does not move a tuple
        in time), and the named results besides or in their place. Either side may be revised at
        any time.

        Args:
            name: Name of the box and of its arc.
            other: The arc that is looked up in.
            on: By field of this arc the field of the other one that must be equal, or the fields,
                where they have one name; all of the other's identity is among them. Null equals
                nothing.
            alias: The name that expressions have for the other arc; its own when not given.
            how: ``left``, or ``inner``: tuples that meet none are left out.
            scope: The scope whose process runs the box.
            partitions: Partitions of its arc if the sides have to be brought together from several
                partitions; as many as the wider of its sides when not given.
            keep: Makes the arc a connection point.
            fields: Results by name, for names that are also options.
            expressions: SQL expression over both sides, by name of the field that it gives, as
                ``symbol="coalesce(renames.new, symbol)"``; this arc's fields need no alias.
        """
        its = arc_of(other)
        alias = its if alias is None else alias
        if not NAME.fullmatch(alias):
            need = f"a name for {its!r} of letters, digits and _"
            self.network.refuse(name, need, repr(alias), 'give it one, with alias="..."')
        pairs = on if isinstance(on, Mapping) else {field: field for field in names(on)}
        return self._declare(
            Lookup,
            name,
            other=its,
            alias=alias,
            on=dict(pairs),
            how=how,
            expressions=self.network.results(name, fields, expressions),
            partitions=partitions,
            scope=scope,
            keep=keep,
        )

    def sink(self, topic: str, *, envelope: str = "native", format: str = "avro") -> None:
        """Write this arc's revisions to a topic of the user's, in the transaction that makes them.

        Args:
            topic: The topic; made with as many partitions as the arc has if it isn't there.
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
                has no window and an event time at the end of time. With ``rows=`` windows count
                tuples in the order of event time and identity: of ``hopping`` and ``tumbling`` ones
                ``window_start`` and ``window_end`` are numbers, from 0, and the event time is that
                of the last tuple; a result of ``sliding`` ones has the identity and the event time
                of the tuple that its window ends with.
            mode: How closed windows are revised: ``upstream``, ``downstream``, ``resident`` (all
                windows are kept in memory) or ``adaptive`` (the cheapest legal one).
            emit: ``on_close``: a result appears when the watermark passes the window's end, or, of
                one that counts, when it is full and the watermark passes its last tuple.
                ``on_update``: it appears, and is revised, in every epoch that changes it.
            order_by: What ``first`` and ``last`` go by, ``"field"`` or ``"field desc"``; event time
                when not given. Ties are broken by identity.
            place: Where the work is done. ``"spark"``: by a Structured Streaming job, which keeps
                the states of windows in Spark's store. Not given: by processes of Errata's.
            horizon: On Spark: how long after it closed a window's state is kept; a window revised
                later is replayed. Not given: as long as its tuples may be revised.
            scope: The scope whose process runs the box; its input's when not given.
            partitions: Partitions of its arc if its groups have to be brought together from several
                partitions; its input's when not given.
            keep: Makes the arc a connection point.
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
            place_of_work=place,
            results=self.network.results(name, fields, results),
            order_by=names(order_by),
            partitions=partitions,
            horizon=horizon,
            scope=scope,
            keep=keep,
        )

    def _declare(self, kind: type[Declaration], name: str, **given: Any) -> Stream:
        return self.network.declare(kind, name, input=self.name, **given)


def arc_of(stream: Stream | str) -> str:
    """Return the name of an arc, which may itself be given."""
    return stream.name if isinstance(stream, Stream) else str(stream)
