"""The audit: recompute arcs from the connection points upstream, and compare.

An arc is compared as of one epoch, with all tuples that its boxes produce as of that epoch: law L1,
on the real content of the topics. Actual and expected tuples meet by hash of the identity; only
counts and a few samples of the differences leave the executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from errata.processors.boxes.base import difference
from errata.processors.wire.replay import pack, unpack
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.spark_jobs.as_of import AsOf, Auditor, Bound
from errata.spark_jobs.reading import Arcs
from errata.spark_jobs.recompute import (
    Recomputation,
    Way,
    by_bucket,
    starts,
    united,
    unpacked,
    ways_to,
)
from errata.spark_jobs.session import collected

BUCKETS = 64
"""Number of hash buckets of groups and identities; one bucket is in memory at a time."""

NEAR = 1e-9
"""Floats that differ by no more than this, relative to the larger one, count as equal."""

SAID, MADE = 0, 1
"""Sides of rows: the arc's content, and the recomputed tuples."""

_FOUND = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in ("tuples", "left_out", *frames.OPS)),
        pa.field("samples", pa.binary()),
    ]
)
_SQL = "tuples long, left_out long, insert long, delete long, replace long, samples binary"
_COPY = "@copy"


class AuditFailedError(ErrataError):
    """Spark stopped during an audit."""


@dataclass(frozen=True)
class Finding:
    """The result of comparing an arc with its recomputed content.

    Args:
        arc: The arc.
        epoch: As of which epoch.
        tuples: How many tuples the arc says there are, of those that were compared.
        missing: Recomputed, but not in the arc.
        unexpected: In the arc, but not recomputed.
        different: In both, with other values.
        left_out: Tuples of the arc that can't be judged, since retention may have taken what they
            were made of.
        samples: Some of the differences, as the revisions that would put the arc right.
    """

    arc: str
    epoch: int
    tuples: int
    missing: int
    unexpected: int
    different: int
    left_out: int
    samples: pl.DataFrame

    @property
    def differences(self) -> int:
        """The number of wrong tuples."""
        return self.missing + self.unexpected + self.different


@dataclass(frozen=True)
class Comparison:
    """Compares the tuples of one bucket.

    Integers, decimals, texts and all other types are compared exactly, floats within `NEAR`; NaN
    equals NaN. Hidden fields are not compared.

    Args:
        arc: The arc.
        bound: Which tuples can't be judged.
        sample: At most so many differences are told.
    """

    arc: Arc
    bound: Bound
    sample: int

    @property
    def columns(self) -> list[str]:
        """The required fields."""
        arc = self.arc
        return list(dict.fromkeys([*arc.identity, *arc.visible, arc.event_time]))

    @property
    def shown(self) -> Arc:
        """The arc with the compared fields, and a number for copies of an identity."""
        names = dict.fromkeys([*self.arc.identity, *self.arc.visible])
        fields = {name: self.arc.fields[name] for name in names} | {_COPY: FieldType("long")}
        return replace(self.arc, fields=fields, identity=(*self.arc.identity, _COPY))

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return a row of counts and samples from the rows of both sides."""
        sides = (unpacked(table, self.arc, self.columns, side=side) for side in (SAID, MADE))
        return pa.Table.from_pylist([self.found(*sides)], schema=_FOUND)

    def found(self, said: pl.DataFrame, made: pl.DataFrame) -> dict[str, Any]:
        """Return the counts and samples as a row.

        Args:
            said: What the arc says.
            made: What was recomputed.
        """
        height = said.height
        said, made = (self._numbered(self._judged(tuples)) for tuples in (said, made))
        revisions = difference(self.shown, said, self._settled(made, said))
        gone = pl.col("op").is_in(self.bound.unjudged)
        left_out = height - said.height + revisions.filter(gone)["op"].len()
        revisions = revisions.filter(~gone)
        return {
            "tuples": said.height,
            "left_out": left_out,
            **{op: int((revisions["op"] == number).sum()) for number, op in enumerate(frames.OPS)},
            "samples": pack(revisions.head(self.sample)),
        }

    def _judged(self, tuples: pl.DataFrame) -> pl.DataFrame:
        return tuples.filter(self.arc.event_times(tuples) >= self.bound.from_ms)

    def _numbered(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Number tuples of the same identity: an arc that was tampered with may have several."""
        number = pl.int_range(pl.len(), dtype=pl.Int64).over(list(self.arc.identity)).alias(_COPY)
        return tuples.with_columns(number).select(list(self.shown.fields))

    def _settled(self, made: pl.DataFrame, said: pl.DataFrame) -> pl.DataFrame:
        """Return the recomputed tuples, with floats replaced by the arc's where those are near."""
        identity, fields = list(self.shown.identity), self.shown.fields
        floats = [
            name
            for name, field in fields.items()
            if field.kind in ("float", "double") and name not in identity
        ]
        if not floats:
            return made
        met = made.join(
            said.select(*identity, *(pl.col(name).alias(f"{name}@") for name in floats)),
            on=identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return met.with_columns(_nearest(name, f"{name}@") for name in floats).select(made.columns)


def _nearest(made: str, said: str) -> pl.Expr:
    """Return a column, with the values of another one where they are finite and near."""
    one, other = (pl.col(name).cast(pl.Float64) for name in (made, said))
    largest = pl.max_horizontal(one.abs(), other.abs())
    near = ((one - other).abs() <= NEAR * largest) & one.is_finite() & other.is_finite()
    return pl.when(near).then(pl.col(said)).otherwise(pl.col(made)).alias(made)


@dataclass(frozen=True)
class Audit:
    """Audits the arcs of a network on Spark.

    Args:
        auditor: Knows the reports.
        arcs: The arcs of the network.
        session: The Spark session.
        buckets: How many parts groups and identities are hashed into.
    """

    auditor: Auditor
    arcs: Arcs
    session: Any
    buckets: int = BUCKETS

    def of(self, arc: str, *, as_of: int | None = None, sample: int = 10) -> Finding:
        """Recompute an arc and compare.

        Args:
            arc: An arc that `Auditor.require` lets pass.
            as_of: The epoch; the last one that is complete when not given.
            sample: At most so many differences are told.

        Raises:
            NotAuditableError: If its history does not reach to the epoch.
            AuditFailedError: If Spark stops.
        """
        auditor, plan = self.auditor, self.arcs.plan
        ways = ways_to(plan, arc)
        at = auditor.as_of(arc, asked=as_of)
        kind = plan.topology.arcs[arc]
        comparison = Comparison(kind, auditor.bound(arc), sample)
        recomputed = self._recomputation(at, [Way(arc, is_computed=False), *ways])
        sides = [
            recomputed.blocks(side, kind, by=kind.identity, columns=comparison.columns, side=number)
            for number, side in ((SAID, [Way(arc, is_computed=False)]), (MADE, ways))
        ]
        rows = collected(
            by_bucket(united(sides), comparison, _SQL),
            failed=lambda why: AuditFailedError(f"arc {arc!r} could not be audited: {why}"),
        )
        return _finding(arc, at.epoch, rows, comparison)

    def _recomputation(self, at: AsOf, ways: Sequence[Way]) -> Recomputation:
        read = starts(self.arcs.plan, ways)
        parts = {name: self.arcs.parts(self.auditor.view, name) for name in read}
        return Recomputation(self.session, self.arcs, parts, at.epoch, at.watermarks, self.buckets)


def _finding(arc: str, epoch: int, rows: Sequence[Any], comparison: Comparison) -> Finding:
    shown = comparison.shown
    samples = pl.concat([frames.none(shown.fields), *(unpack(row["samples"]) for row in rows)])
    order = frames.identities(samples, shown.identity).with_row_index("@row")
    ordered = samples[order.sort(list(shown.identity))["@row"]].head(comparison.sample)
    total = {name: sum(row[name] for row in rows) for name in ("tuples", "left_out", *frames.OPS)}
    return Finding(
        arc,
        epoch,
        tuples=total["tuples"],
        missing=total["insert"],
        unexpected=total["delete"],
        different=total["replace"],
        left_out=total["left_out"],
        samples=ordered,
    )
