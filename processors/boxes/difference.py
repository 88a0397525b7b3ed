"""The revisions between two contents of an arc, and how to undo them."""

from __future__ import annotations

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


def difference(arc: Arc, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that turn one content of an arc into another, one per identity.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> fields = {"x": FieldType("long"), "y": FieldType("long")}
        >>> arc = Arc("a", fields, identity=("x",), event_time="x", partition_by=())
        >>> before = pl.DataFrame({"x": [1, 2], "y": [5, 6]})
        >>> difference(arc, before, pl.DataFrame({"x": [1], "y": [7]}))["op"].to_list()
        [2, 1]
    """
    identity = list(arc.identity)
    keys = pl.concat([before.select(identity), after.select(identity)])
    keys = keys.unique(maintain_order=True)

    def side(tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        found = keys.join(
            tuples.with_columns(pl.lit(True).alias("@there")),
            on=identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return found.select(list(arc.fields)), found["@there"].fill_null(False)

    return frames.between(*side(before), *side(after))


def undone(arc: Arc, now: pl.DataFrame, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return the tuples as they were before some revisions."""
    identity, names = list(arc.identity), list(arc.fields)
    touched = frames.identities(revisions, identity)
    left = now.join(touched, on=identity, how="anti", nulls_equal=True)
    return pl.concat([left, frames.leaving(revisions, names)])
