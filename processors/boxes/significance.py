"""Significance: a revision is kept back while what was emitted is close enough to the exact result.

A box with ``significance=`` is three boxes of its scope. The box itself writes its exact results to
``<box>-exact``. `KeptBack` writes to ``<box>-kept`` the results whose last revision was kept back:
each as it was emitted, and as it is. `Emitted` writes the arc of the box: the exact results, but
those that are kept back as they were emitted.

The content of `Emitted` is a function of the contents of the other two, so joins and replays go
through it as through any box. Only that of `KeptBack` depends on what happened before; it is a
connection point, and the box reads it back for the identities that an epoch revises. A bound holds
after every epoch: each emitted result is within its thresholds of the exact one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.base import (
    RESULTS,
    Box,
    BoxSteps,
    HistoryInput,
    Live,
    Need,
    Outcome,
    Refused,
)
from errata.processors.boxes.bounds import EXACT as ALL_EXACT
from errata.processors.boxes.bounds import Bound, Bounds
from errata.processors.boxes.matching import of_identities
from errata.processors.expressions.expression import Expression
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical

ALL = pl.DataFrame(
    {"from_ms": [-FOREVER_MS], "to_ms": [FOREVER_MS]},
    schema={"from_ms": pl.Int64, "to_ms": pl.Int64},
)
"""The ranges of everything."""
PREFIXES = EMITTED, EXACT = "emitted_", "exact_"
"""Prefixes of the fields of `KeptBack`: of a result as it was emitted, and as it is."""


@dataclass(frozen=True)
class Threshold:
    """How far an emitted value may be from the exact one.

    Args:
        text: As the user wrote it.
        bound: The same as a bound.
        is_within: Whether it is close enough, over the fields ``emitted`` and ``exact``; null, if
            one of them is null or NaN, counts as false.
    """

    text: str
    bound: Bound
    is_within: Expression


@dataclass(frozen=True)
class KeptBack(Box):
    """The results that were emitted with another value than they have.

    Args:
        arc: The arc it writes: identity and event time, and each other field of the input twice.
        input: The arc with the exact results.
        thresholds: By field. A field without one must be the same; hidden fields do not count.
    """

    arc: Arc
    input: Arc
    thresholds: Mapping[str, Threshold]

    reads_back = True

    @property
    def kind(self) -> str:
        """The name of this kind of box in `errata explain`."""
        return "kept back"

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """Its input."""
        return [HistoryInput(self.input, self.input.identity, list(self.input.fields))]

    @property
    def requests_history(self) -> bool:
        """Whether it can need history of its input: no, only of its own arc."""
        return False

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        texts = {name: threshold.text for name, threshold in self.thresholds.items()}
        return {"kept_back": texts, "input": self.input.name}

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return no tuples: what is recomputed is exact."""
        return pl.DataFrame(schema=physical(self.arc.fields)), ()

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples of the same identities."""
        return of_identities(self.arc, results, inputs)

    def bounds(self, *above: Bounds) -> Bounds:
        """Return no bounds: what it holds is known."""
        return ALL_EXACT

    def informed(self, live: Live, counts: Mapping[str, int]) -> Live:
        """Return how many results are kept back."""
        return replace(live, kept_back=counts.get("inexact", 0) - counts.get("settled", 0))

    def count_results(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Count the results that became inexact, and those that became exact."""
        ops = revisions["op"]
        return {
            "inexact": int((ops == frames.INSERT).sum()),
            "settled": int((ops == frames.DELETE).sum()),
        }

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Keep back the replaces of results that stay close enough to what was emitted."""
        (changes,) = revisions
        changes = by_column.kept(changes, changes["op"] != frames.INSERT)
        settles = live.settles and live.kept_back > 0
        live = replace(live, settles=False)
        if changes.is_empty() and not settles:
            return Outcome(live, frames.none(self.arc.fields))
        names = list(self.input.fields)
        before, after = (
            frames.side(changes, side, names) for side in (frames.BEFORE, frames.AFTER)
        )
        own = pl.DataFrame(schema=physical(self.arc.fields))
        if live.kept_back:
            (own,) = yield Need(RESULTS, ALL if settles else self._ranges(before))
        identity = list(self.arc.identity)
        known = by_column.beside(own, by_column.constant(True, own.height, pl.Boolean).alias("@"))
        kept = by_column.pick(before, identity).join(
            known, on=identity, how="left", nulls_equal=True, maintain_order="left"
        )
        was_kept = kept["@"].fill_null(False)
        emitted = by_column.beside(
            before, *(kept[EMITTED + n].zip_with(was_kept, before[n]).alias(n) for n in self._twice)
        )
        is_near = (changes["op"] == frames.REPLACE) & self._is_near(emitted, after) & (not settles)
        is_kept = is_near & ~_are_same(emitted, after, names)
        revised = frames.between(
            by_column.pick(kept, self.arc.fields), was_kept, self._tuples(emitted, after), is_kept
        )
        if settles:
            others = own.join(kept, on=identity, how="anti", nulls_equal=True)
            revised = pl.concat([revised, _deletes(others)])
        counts = self.count_results(revised, wm_before=wm_before)
        now = live.kept_back + counts["inexact"] - counts["settled"]
        counts["kept_back"] = int(is_near.sum())
        return Outcome(replace(live, kept_back=now), revised, counts)

    @property
    def _twice(self) -> list[str]:
        """The fields of the input that its own arc has twice."""
        once = {*self.arc.identity, self.arc.event_time}
        return [name for name in self.input.fields if name not in once]

    def _ranges(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the ranges of what is kept back of some results."""
        at = self.input.event_times(tuples)
        groups = by_column.pick(tuples, self.arc.identity)
        return by_column.beside(groups, at.alias("from_ms"), (at + 1).alias("to_ms"))

    def _is_near(self, emitted: pl.DataFrame, exact: pl.DataFrame) -> pl.Series:
        """Whether each emitted result is close enough to the exact one, in all its fields."""
        shown = {*self.input.visible, self.arc.event_time}
        near = _are_same(emitted, exact, [name for name in shown if name not in self.thresholds])
        for name, threshold in self.thresholds.items():
            pairs = pl.DataFrame([emitted[name].alias("emitted"), exact[name].alias("exact")])
            is_within = threshold.is_within.evaluate(pairs).fill_null(False)
            near &= is_within | _are_same(emitted, exact, [name])
        return near

    def _tuples(self, emitted: pl.DataFrame, exact: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples of its arc for results, as they were emitted and as they are."""
        twice = self._twice
        columns = [
            *(exact[name] for name in exact.columns if name not in twice),
            *(emitted[name].alias(EMITTED + name) for name in twice),
            *(exact[name].alias(EXACT + name) for name in twice),
        ]
        return by_column.pick(pl.DataFrame(columns), self.arc.fields)


def _deletes(tuples: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that delete some tuples."""
    always = by_column.constant(True, tuples.height, pl.Boolean)
    return frames.between(tuples, always, tuples, ~always)


def _are_same(one: pl.DataFrame, other: pl.DataFrame, names: Collection[str]) -> pl.Series:
    """Whether two frames are the same in some fields, row by row; NaN equals NaN."""
    same = by_column.constant(True, one.height, pl.Boolean)
    for name in names:
        same &= one[name].eq_missing(other[name])
    return same


def kept_fields(exact: Arc) -> dict[str, FieldType]:
    """Return the fields of the arc of `KeptBack`, for the arc with the exact results."""
    once = {*exact.identity, exact.event_time}
    fields = {name: kind for name, kind in exact.fields.items() if name in once}
    for prefix in (EMITTED, EXACT):
        fields |= {prefix + n: kind for n, kind in exact.fields.items() if n not in once}
    return fields


@dataclass(frozen=True)
class Emitted(Box):
    """The results as they were emitted: the exact ones, but for those that are kept back.

    Args:
        arc: The arc it writes, with the fields of `exact`.
        exact: The arc with the exact results.
        kept: The arc of `KeptBack`.
        thresholds: Its thresholds by field.
    """

    arc: Arc
    exact: Arc
    kept: Arc
    thresholds: Mapping[str, Threshold]

    @property
    def kind(self) -> str:
        """The name of this kind of box in `errata explain`."""
        return "significance"

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """The exact results, and those that are kept back."""
        return [
            HistoryInput(arc, self.arc.identity, list(arc.fields))
            for arc in (self.exact, self.kept)
        ]

    @property
    def requests_history(self) -> bool:
        """Whether it can need history: no, the revisions of an epoch tell all."""
        return False

    @property
    def kept_back(self) -> Arc:
        """The arc of those of its results that are not as its own arc has them."""
        return self.kept

    def exact_results(self, stored: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
        """Return stored results as they are, in place of as they were emitted.

        Args:
            stored: Tuples of its arc, with the identity and some of the other fields.
            kept: Tuples of `kept`.
        """
        others = stored.join(kept, on=list(self.arc.identity), how="anti", nulls_equal=True)
        return pl.concat([others, self._as(EXACT, kept, names=stored.columns)])

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {"significance": self.exact.name, "inputs": [self.exact.name, self.kept.name]}

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an upstream aggregate can't be revised from its own."""
        if self.arc.is_connection_point:
            return None
        return f"{self.arc.name!r} below it has significance= and no keep="

    @property
    def identities_of(self) -> str:
        """The input that holds the identity of each of its tuples: the exact results."""
        return self.exact.name

    def bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: its thresholds, and what the exact results are off by."""
        known, _ = above
        if known.why:
            return known
        own = {
            name: bound and bound.and_then(threshold.bound)
            for name, threshold in self.thresholds.items()
            for bound in [known.fields.get(name, Bound() if name not in known.fields else None)]
        }
        return Bounds({**known.fields, **own})

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the results as emitted; it refuses nothing."""
        exact, kept = inputs
        identity = list(self.arc.identity)
        others = exact.join(kept, on=identity, how="anti", nulls_equal=True)
        return pl.concat([by_column.pick(others, self.arc.fields), self._as(EMITTED, kept)]), ()

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples of the same identities."""
        return of_identities(self.arc, results, inputs)

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Pass on the revisions that are not kept back; yields nothing."""
        yield from ()
        changes, kept = revisions
        if kept.is_empty():
            return Outcome(live, by_column.pick(changes, frames.schema(self.arc.fields)))
        columns, names = list(frames.schema(self.arc.fields)), list(self.arc.fields)
        on = [f"@{name}" for name in self.arc.identity]
        ids, found = (
            by_column.beside(frame, *(ids[n].alias(f"@{n}") for n in ids.columns))
            for frame in (kept, changes)
            for ids in [frames.identities(frame, self.arc.identity)]
        )
        others = found.join(ids, on=on, how="anti", nulls_equal=True, maintain_order="left")
        change = by_column.pick(ids, on).join(
            found, on=on, how="left", nulls_equal=True, maintain_order="left"
        )
        had, has = kept["op"] != frames.INSERT, kept["op"] != frames.DELETE
        before = _chosen(
            had,
            self._as(EMITTED, kept, side=frames.BEFORE),
            frames.side(change, frames.BEFORE, names),
        )
        is_revised = change["op"].is_not_null()
        exact = _chosen(  # a result may also be settled without a revision
            is_revised,
            frames.side(change, frames.AFTER, names),
            self._as(EXACT, kept, side=frames.BEFORE),
        )
        after = _chosen(has, self._as(EMITTED, kept, side=frames.AFTER), exact)
        exists = has | (change["op"] != frames.DELETE).fill_null(True)
        always = by_column.constant(True, kept.height, pl.Boolean)
        revised = frames.between(before, always, after, exists)
        return Outcome(live, pl.concat([by_column.pick(others, columns), revised]))

    def _as(
        self, prefix: str, kept: pl.DataFrame, *, side: str = "", names: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Return results that are kept back, as they were emitted or as they are.

        Args:
            prefix: `EMITTED` or `EXACT`.
            kept: Tuples of `kept`, or revisions of it.
            side: The side of revisions.
            names: The fields of the results; None: all.
        """
        once = {*self.arc.identity, self.arc.event_time}
        found = {n: side + (n if n in once else prefix + n) for n in names or self.arc.fields}
        return by_column.renamed(kept, found)


def _chosen(is_first: pl.Series, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Return each row of the first frame for which that is true, else that of the second."""
    return pl.DataFrame([first[n].zip_with(is_first, second[n]) for n in first.columns])
