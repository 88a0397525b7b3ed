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

TOLERANCE = 1e-9
"""Floats that differ by no more than this, relative to the larger one, count as equal."""

ACTUAL, EXPECTED = 0, 1
"""Sides of rows: the arc's content, and the recomputed tuples."""

_COUNTS = pa.schema(
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
        tuples: Number of the arc's tuples that were compared.
        missing: Recomputed, but not in the arc.
        unexpected: In the arc, but not recomputed.
        different: In both, with other values.
        left_out: Tuples of the arc that can't be judged, since retention may have removed their
            inputs.
        samples: Some of the differences, as the revisions that would correct the arc.
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

    Floats are compared within `TOLERANCE`, all other types exactly; NaN equals NaN.
    Hidden fields are not compared.

    Args:
        arc: The arc.
        bound: Which tuples can't be judged.
        sample: Maximum number of differences to return.
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
        sides = (unpacked(table, self.arc, self.columns, side=side) for side in (ACTUAL, EXPECTED))
        return pa.Table.from_pylist([self.compare(*sides)], schema=_COUNTS)

    def compare(self, actual: pl.DataFrame, expected: pl.DataFrame) -> dict[str, Any]:
        """Return the counts and samples as a row.

        Args:
            actual: The arc's tuples.
            expected: The recomputed tuples.
        """
        height = actual.height
        actual, expected = (self._numbered(self._judged(tuples)) for tuples in (actual, expected))
        revisions = difference(self.shown, actual, self._with_actual_floats(expected, actual))
        is_unjudged = pl.col("op").is_in(self.bound.unjudged)
        left_out = height - actual.height + revisions.filter(is_unjudged)["op"].len()
        revisions = revisions.filter(~is_unjudged)
        return {
            "tuples": actual.height,
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

    def _with_actual_floats(self, expected: pl.DataFrame, actual: pl.DataFrame) -> pl.DataFrame:
        """Return the recomputed tuples, with the arc's floats where they are within `TOLERANCE`."""
        identity, fields = list(self.shown.identity), self.shown.fields
        floats = [
            name
            for name, field in fields.items()
            if field.kind in ("float", "double") and name not in identity
        ]
        if not floats:
            return expected
        joined = expected.join(
            actual.select(*identity, *(pl.col(name).alias(f"{name}@") for name in floats)),
            on=identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return joined.with_columns(_nearest(name, f"{name}@") for name in floats).select(
            expected.columns
        )


def _nearest(expected: str, actual: str) -> pl.Expr:
    """Return a column, with the values of another one where they are finite and near."""
    left, right = (pl.col(name).cast(pl.Float64) for name in (expected, actual))
    largest = pl.max_horizontal(left.abs(), right.abs())
    is_near = ((left - right).abs() <= TOLERANCE * largest) & left.is_finite() & right.is_finite()
    return pl.when(is_near).then(pl.col(actual)).otherwise(pl.col(expected)).alias(expected)


@dataclass(frozen=True)
class Audit:
    """Audits the arcs of a network on Spark.

    Args:
        auditor: Determines the epoch and the tuples that can be judged.
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
            as_of: The epoch; None for the last one that is complete.
            sample: Maximum number of differences to return.

        Raises:
            NotAuditableError: If its history does not reach to the epoch.
            AuditFailedError: If Spark stops.
        """
        auditor, plan = self.auditor, self.arcs.plan
        ways = ways_to(plan, arc)
        at = auditor.as_of(arc, requested=as_of)
        kind = plan.topology.arcs[arc]
        comparison = Comparison(kind, auditor.bound(arc), sample)
        recomputed = self._recomputation(at, [Way(arc, is_computed=False), *ways])
        sides = [
            recomputed.blocks(side, kind, by=kind.identity, columns=comparison.columns, side=number)
            for number, side in ((ACTUAL, [Way(arc, is_computed=False)]), (EXPECTED, ways))
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
