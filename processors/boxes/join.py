"""Join: pairs of tuples of two arcs that have equal values in some fields.

This is the bilinear rule in its simplest form. For the keys that an epoch touches on either side,
the box requests both sides' tuples as of the epoch. It undoes the epoch's own revisions to get the
tuples before, and emits the difference between the pairs before and the pairs now. It keeps nothing
between epochs: the sides' tuples come from connection points.

No connection point is needed if both sides come from one arc through boxes that process one tuple
at a time, and are joined on the identity of that arc: a revision of the arc then holds everything
about an identity, before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from errata.processors.boxes.base import (
    INPUTS,
    Box,
    BoxSteps,
    HistoryInput,
    Live,
    Need,
    Outcome,
    Refused,
    difference,
    undo_revisions,
)
from errata.processors.boxes.bounds import Bound, Bounds
from errata.processors.boxes.matching import among
from errata.processors.expressions.expression import Expression
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import HIDDEN_PREFIX, Arc


@dataclass(frozen=True)
class Side:
    """One of the two arcs of a join.

    Args:
        alias: Its name in expressions.
        arc: The arc.
        chain: The boxes that compute it from the arc that both sides come from, in order.
    """

    alias: str
    arc: Arc
    chain: tuple[Box, ...] = ()

    def column(self, field: str) -> str:
        """Return the name of a field in a pair."""
        return f"{self.alias}.{field}"

    def carried(self, on: Sequence[str]) -> dict[str, str]:
        """Return the names in the join's arc of the identity's fields that are not joined on.

        Hidden fields stay hidden.
        """
        names = [name for name in self.arc.identity if name not in on]
        return {
            f"{HIDDEN_PREFIX}{self.alias}_{name.removeprefix(HIDDEN_PREFIX)}"
            if name.startswith(HIDDEN_PREFIX)
            else f"{self.alias}_{name}": name
            for name in names
        }


@dataclass(frozen=True)
class Join(Box):
    """A join box.

    The event time of a pair is that of its later tuple. Its identity is that of both tuples.

    Args:
        arc: The arc it writes: the fields joined on, the rest of both identities as
            ``<alias>_<field>``, the event time, and the named results.
        sides: The left and the right side.
        on: The fields that must be equal; null equals nothing.
        is_left: Whether a left tuple without a right one is kept, with nulls for the right.
        expressions: Expressions over the columns of pairs, by name of the result.
        columns: The column in a pair of each field that needs no alias, by field.
        shared: The arc that both sides come from, if no history is needed.
    """

    arc: Arc
    sides: tuple[Side, Side]
    on: tuple[str, ...]
    is_left: bool
    expressions: Mapping[str, Expression]
    columns: Mapping[str, str]
    shared: Arc | None = None

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The fields of each side that must be equal, in the same order."""
        return self.on, self.on

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """Both sides, or the one arc that both come from."""
        if self.shared is not None:
            return [HistoryInput(self.shared, self.shared.identity, list(self.shared.fields))]
        sides = zip(self.sides, self.keys, strict=True)
        return [HistoryInput(side.arc, keys, list(side.arc.fields)) for side, keys in sides]

    @property
    def requests_history(self) -> bool:
        """Whether it can need history."""
        return self.shared is None

    @property
    def extent_ms(self) -> int:
        """How far back in event time it requests history: a tuple of a pair may have any age."""
        return FOREVER_MS

    @property
    def looks_ahead(self) -> bool:
        """Whether later tuples matter: in a left join, a later right tuple replaces the nulls."""
        return self.is_left

    @property
    def only_adds(self) -> bool:
        """Whether an additional tuple never removes a pair; in a left join it may replace one."""
        return not self.is_left

    def is_linear(self, linear: Collection[str], changing: Collection[str]) -> bool:
        """Whether it is linear within a loop: both sides come from the same tuple."""
        return self.shared is not None and set(self.inputs) <= set(linear)

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: of a field of a pair, that of the tuple that it is from."""
        if self.shared is not None:
            return self._unbounded
        known = dict(zip(self.inputs, above, strict=True))
        fields = dict[str, Bound | None]()
        for side, keys in zip(self.sides, self.keys, strict=True):
            own = known[side.arc.name]
            if own.reads(keys):
                return self._unbounded
            fields |= {side.column(name): bound for name, bound in own.fields.items()}
        pairs = Bounds(fields | {n: fields[c] for n, c in self.columns.items() if c in fields})
        copied = pairs.only(n for n in self.arc.fields if n not in self.expressions)
        return Bounds({**copied.fields, **pairs.computed(self.expressions).fields})

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {
            "join": {side.alias: side.arc.name for side in self.sides},
            "on": list(self.on),
            "how": "left" if self.is_left else "inner",
            "fields": {name: expression.text for name, expression in self.expressions.items()},
            "inputs": list(self.inputs),
        }

    # ---------------------------------------------------------------- whole collections

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the output for whole collections; it refuses nothing."""
        return self._joined(*self._sides(inputs)), ()

    def _sides(self, inputs: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return both sides' tuples."""
        if self.shared is None:
            return self._of_sides(inputs)
        (content,) = inputs
        return [
            reduce(lambda tuples, box: box.recompute(tuples), side.chain, content)
            for side in self.sides
        ]

    def _of_sides(self, inputs: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return the input of each side; an arc may be joined with itself."""
        by_arc = dict(zip(self.inputs, inputs, strict=True))
        return [by_arc[side.arc.name] for side in self.sides]

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return the pairs."""
        one, other = (
            pl.DataFrame(
                [
                    *(tuples[name].alias(side.column(name)) for name in side.arc.fields),
                    side.arc.event_times(tuples).alias(side.column("@time")),
                ]
            )
            for side, tuples in zip(self.sides, (left, right), strict=True)
        )
        matches = one.join(
            other,
            left_on=[self.sides[0].column(name) for name in self.keys[0]],
            right_on=[self.sides[1].column(name) for name in self.keys[1]],
            how="left" if self.is_left else "inner",
            coalesce=False,
        )
        unqualified = (matches[self.columns[name]].alias(name) for name in self._unqualified)
        pairs = by_column.beside(matches, *unqualified)
        computed = {
            name: expression.evaluate(pairs).alias(name)
            for name, expression in self.expressions.items()
        }
        return pairs.select(
            computed[name] if name in computed else self._copied_field(name)
            for name in self.arc.fields
        )

    @property
    def _unqualified(self) -> list[str]:
        """The fields that expressions name without an alias."""
        names = {name for expression in self.expressions.values() for name in expression.columns}
        return [name for name in self.columns if name in names]

    def _copied_field(self, name: str) -> pl.Expr:
        """Return a field of a pair that no expression computes."""
        left = self.sides[0]
        if name in self.on:
            return pl.col(left.column(name)).alias(name)
        if name == self.arc.event_time:
            times = pl.max_horizontal(side.column("@time") for side in self.sides)
            return (times - self.arc.event_time_shift_ms).alias(name)
        side = next(side for side in self.sides if name in side.carried(self.on))
        return pl.col(side.column(side.carried(self.on)[name])).alias(name)

    # ---------------------------------------------------------------- lineage

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return both sides' tuples of some pairs; in a left join, all that match the left ones."""
        return self._inputs_of(results, inputs, all_matches=self.is_left)

    def lineage(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return both sides' tuples of some pairs."""
        return self._inputs_of(results, inputs, all_matches=False)

    def _inputs_of(
        self, results: pl.DataFrame, inputs: Sequence[pl.DataFrame], *, all_matches: bool
    ) -> list[pl.DataFrame]:
        if self.shared is not None:  # joined on its identity
            return [among(inputs[0], results, {name: name for name in self.shared.identity})]
        left, right = self._of_sides(inputs)
        left = among(left, results, self._identity_in_pairs(0))
        names = self._identity_in_pairs(1)
        others = [among(right, results, names)] if names else []
        if all_matches:
            others.append(among(right, left, dict(zip(*self.keys, strict=True))))
        found: dict[str, list[pl.DataFrame]] = {name: [] for name in self.inputs}
        found[self.sides[0].arc.name].append(left)
        found[self.sides[1].arc.name] += others
        return [pl.concat(parts).unique(maintain_order=True) for parts in found.values()]

    def _identity_in_pairs(self, place: int) -> dict[str, str]:
        """Return the fields of a side's identity, by the names that they have in pairs."""
        side, keys = self.sides[place], dict(zip(self.on, self.keys[place], strict=True))
        names = keys | side.carried(self.keys[place])
        return {name: own for name, own in names.items() if own in side.arc.identity}

    # ---------------------------------------------------------------- revisions

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields a need and is sent a frame for each side."""
        if not any(frame.height for frame in revisions):
            return Outcome(live, frames.none(self.arc.fields))
        if self.shared is not None:
            names = list(self.shared.fields)
            before = self.recompute(frames.leaving(revisions[0], names))
            after = self.recompute(frames.entering(revisions[0], names))
            return Outcome(live, difference(self.arc, before, after))
        changes = self._of_sides(revisions)
        keys = self._touched(changes)
        answers = yield Need(INPUTS, keys.with_columns(from_ms=-FOREVER_MS, to_ms=FOREVER_MS))
        current = [
            by_column.pick(tuples, side.arc.fields).join(
                keys, left_on=list(key_fields), right_on=list(self.on), how="semi", nulls_equal=True
            )
            for side, key_fields, tuples in zip(self.sides, self.keys, answers, strict=True)
        ]
        previous = [
            undo_revisions(side.arc, tuples, revised)
            for side, tuples, revised in zip(self.sides, current, changes, strict=True)
        ]
        counts = {"replayed": sum(tuples.height for tuples in answers)}
        revised = difference(self.arc, self._joined(*previous), self._joined(*current))
        return Outcome(live, revised, counts)

    def _touched(self, revisions: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the keys that revisions of either side touch, under the left side's names."""
        touched = [
            take_side(frame, key_fields).rename(dict(zip(key_fields, self.on, strict=True)))
            for frame, key_fields in zip(revisions, self.keys, strict=True)
            for take_side in (frames.leaving, frames.entering)
        ]
        return pl.concat(touched).unique(maintain_order=True)
