"""Requests that boxes of a scope share, because they need history of the same connection point.

Boxes that wait for one connection point in the same step of an epoch ask for the union of their
ranges in one request, and each takes its part of the answer. The sweepers look each tuple up, and
send it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.replay import ReplayQuery, merged
from errata.schemas import by_column
from errata.schemas.arc import Arc


class Sharing:
    """Some queries, and the fewer ones that are sent for them.

    Args:
        queries: The queries. Those of the same arc, as of the same epoch, by the same fields are
            sent as one.
        arcs: The arcs, by name.

    Attributes:
        sent: The queries to send.
    """

    def __init__(self, queries: Sequence[ReplayQuery], arcs: Mapping[str, Arc]) -> None:
        groups: dict[object, list[int]] = {}
        for number, query in enumerate(queries):
            groups.setdefault(_kind(query), []).append(number)
        self._members, self._parts = list(groups.values()), dict[int, Part]()
        self._count, self.sent = len(queries), list[ReplayQuery]()
        for numbers in self._members:
            members = [queries[number] for number in numbers]
            if len(members) == 1:
                self.sent += members
                continue
            columns = members[0].ranges.columns
            own = [merged(by_column.pick(query.ranges, columns)) for query in members]
            union = merged(pl.concat(own))
            parts = [
                Part(arcs[members[0].arc], None if each.equals(union) else each) for each in own
            ]
            self._parts |= zip(numbers, parts, strict=True)
            takes = [query.take for query in members if query.take is not None]
            take = _given_to_all(takes, parts) if takes else None
            self.sent.append(replace(members[0], ranges=union, take=take))

    @property
    def leads(self) -> list[bool]:
        """For each query, whether it is the first of those that are sent as one."""
        first = {numbers[0] for numbers in self._members}
        return [number in first for number in range(self._count)]

    def answers(self, received: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return the answer to each query.

        Args:
            received: The answers to the queries that were sent.
        """
        found = dict[int, pl.DataFrame]()
        for numbers, answer in zip(self._members, received, strict=True):
            for number in numbers:
                part = self._parts.get(number)
                found[number] = answer if part is None else part.of(answer)
        return [found[number] for number in range(self._count)]


def _kind(query: ReplayQuery) -> object:
    """Return what two queries have in common that can be sent as one."""
    fields = frozenset(query.ranges.schema.items())
    return query.arc, query.as_of, query.everywhere, query.take is None, fields


def _given_to_all(
    takes: Sequence[Callable[[pl.DataFrame], None]], parts: Sequence[Part]
) -> Callable[[pl.DataFrame], None]:
    def take(tuples: pl.DataFrame) -> None:
        for own, part in zip(takes, parts, strict=True):
            own(part.of(tuples))

    return take


@dataclass(frozen=True)
class Part:
    """The part of an answer that one of several queries has asked for.

    Args:
        arc: The arc of the tuples.
        ranges: The query's ranges, without overlaps; None: it has asked for the whole answer.
    """

    arc: Arc
    ranges: pl.DataFrame | None

    def of(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples in the ranges, in order."""
        if self.ranges is None or tuples.is_empty():
            return tuples
        group = [name for name in self.ranges.columns if name not in ("from_ms", "to_ms")]
        groups = self.ranges.select(group).unique().with_row_index("@group")
        at = by_column.beside(
            by_column.pick(tuples, group), self.arc.event_times(tuples).alias("@at")
        ).with_row_index("@row")
        ranges = self.ranges
        if group:
            at = at.join(groups, on=group, nulls_equal=True)
            ranges = ranges.join(groups, on=group, nulls_equal=True)
        found = at.sort("@at").join_asof(
            ranges.select("from_ms", "to_ms", *["@group"] * bool(group)).sort("from_ms"),
            left_on="@at",
            right_on="from_ms",
            by="@group" if group else None,
            strategy="backward",
            check_sortedness=False,
        )
        rows = found.filter(pl.col("@at") < pl.col("to_ms"))["@row"].sort()
        return tuples[rows]
