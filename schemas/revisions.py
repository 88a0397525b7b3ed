"""Revisions as columns: their in-memory form everywhere between decode and encode.

A *frame of revisions* is a polars DataFrame with one row for each revision: ``op`` (UInt8, see
below), then ``before.<field>`` and ``after.<field>`` for every field of the arc in physical types,
null on a side that the revision does not have. A frame read from a topic also has ``task``,
``attempt``, ``epoch`` and ``offset``. A *frame of tuples* has one row for each tuple and the arc's
own field names.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from errata.schemas import by_column
from errata.schemas.fields import Fields

INSERT, DELETE, REPLACE = 0, 1, 2
OPS = ("insert", "delete", "replace")
BEFORE, AFTER = "before.", "after."


def schema(fields: Fields) -> dict[str, type[pl.DataType]]:
    """Return the polars schema of an arc's frame of revisions."""
    columns: dict[str, type[pl.DataType]] = {"op": pl.UInt8}
    for side in (BEFORE, AFTER):
        columns |= {side + name: field.dtype for name, field in fields.items()}
    return columns


def none(fields: Fields) -> pl.DataFrame:
    """Return an empty frame of revisions."""
    return pl.DataFrame(schema=schema(fields))


def side(revisions: pl.DataFrame, prefix: str, names: Sequence[str]) -> pl.DataFrame:
    """Return one side as tuples, one row for each revision, null where the side is absent.

    Example:
        >>> frame = pl.DataFrame({"op": [2], "before.x": [1], "after.x": [5]})
        >>> side(frame, AFTER, ["x"])["x"].to_list()
        [5]
    """
    return by_column.renamed(revisions, {name: prefix + name for name in names})


def with_sides(revisions: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions with ``before`` and ``after``: whether each has that side."""
    op = revisions["op"]
    sides = (op != INSERT).alias("before"), (op != DELETE).alias("after")
    return by_column.beside(revisions, *sides)


def leaving(revisions: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the tuples that the revisions remove (by deletes and replaces)."""
    return by_column.kept(side(revisions, BEFORE, names), revisions["op"] != INSERT)


def entering(revisions: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the tuples that the revisions add (by inserts and replaces)."""
    return by_column.kept(side(revisions, AFTER, names), revisions["op"] != DELETE)


def between(
    before: pl.DataFrame, has_before: pl.Series, after: pl.DataFrame, has_after: pl.Series
) -> pl.DataFrame:
    """Return the revisions that turn one side into the other, row by row.

    Rows that exist on neither side, or are the same on both (NaN equals NaN), produce none.

    Args:
        before: Tuples as they were; a row's content counts only where `has_before`.
        has_before: Whether the tuple existed; never null.
        after: Tuples as they are, same columns and height.
        has_after: Whether the tuple exists; never null.
    """
    names = before.columns
    frame = pl.DataFrame(
        [before[name].alias(BEFORE + name) for name in names]
        + [after[name].alias(AFTER + name) for name in names]
        + [has_before.alias("b"), has_after.alias("a")]
    )
    same = pl.all_horizontal(
        [pl.col("b") & pl.col("a")]
        + [pl.col(BEFORE + name).eq_missing(pl.col(AFTER + name)) for name in names]
    )
    op = (
        pl.when(pl.col("b") & pl.col("a"))
        .then(REPLACE)
        .when("a")
        .then(INSERT)
        .otherwise(DELETE)
        .cast(pl.UInt8)
        .alias("op")
    )
    absent = [pl.when("b").then(pl.col(BEFORE + name)).alias(BEFORE + name) for name in names] + [
        pl.when("a").then(pl.col(AFTER + name)).alias(AFTER + name) for name in names
    ]
    differs = frame.select((pl.col("b") | pl.col("a")) & ~same).to_series()
    return by_column.kept(frame, differs).select(op, *absent)


def inserts(tuples: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that insert some tuples.

    Example:
        >>> inserts(pl.DataFrame({"x": [5]})).row(0)
        (0, None, 5)
    """
    exist = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
    return between(tuples, ~exist, tuples, exist)


def replacing(tuples: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return a replace of each tuple by itself, with the columns of a frame of revisions."""
    sides = [pl.col(name).alias(side + name) for side in (BEFORE, AFTER) for name in tuples.columns]
    return tuples.select(pl.lit(REPLACE, pl.UInt8).alias("op"), *sides).select(columns)


def identities(revisions: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Return the identity of each revision, from whichever side it has."""
    if not (revisions["op"] == DELETE).any():
        return side(revisions, AFTER, identity)
    return revisions.select(
        pl.when(pl.col("op") == DELETE)
        .then(pl.col(BEFORE + name))
        .otherwise(pl.col(AFTER + name))
        .alias(name)
        for name in identity
    )


def net(revisions: pl.DataFrame, identity: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Return at most one revision per identity: a delete and an insert become a replace, or none.

    Args:
        revisions: Of one epoch, in any order; of an identity there is one, or a delete and an
            insert.
        identity: Fields that name a tuple.
        names: All fields.

    Example:
        >>> frame = pl.DataFrame({"op": [0, 1], "before.x": [None, 1], "after.x": [1, None],
        ...     "before.y": [None, 5], "after.y": [6, None]}, schema_overrides={"op": pl.UInt8})
        >>> net(frame, ["x"], ["x", "y"]).select("op", "before.y", "after.y").row(0)
        (2, 5, 6)
    """
    is_paired = identities(revisions, identity).is_duplicated()
    if not is_paired.any():
        return revisions
    pairs = revisions.filter(is_paired)
    deleted = side(pairs.filter(pl.col("op") == DELETE), BEFORE, names)
    inserted = side(pairs.filter(pl.col("op") == INSERT), AFTER, names)
    joined = deleted.join(
        inserted, on=list(identity), nulls_equal=True, suffix="@", maintain_order="left"
    )
    both = by_column.constant(True, joined.height, pl.Boolean)
    after = joined.select(
        pl.col(name if name in identity else name + "@").alias(name) for name in names
    )
    replaced = between(joined.select(names), both, after, both)
    return pl.concat([revisions.filter(~is_paired), replaced.select(revisions.columns)])


def coalesced(
    revisions: pl.DataFrame, identity: Sequence[str], names: Sequence[str]
) -> pl.DataFrame:
    """Return the net effect of revisions of several epochs: at most one revision for each identity.

    Args:
        revisions: With their ``epoch``, in any order; exact copies do no harm.
        identity: Fields that name a tuple.
        names: All fields.

    Example:
        >>> frame = pl.DataFrame({"op": [0, 2], "epoch": [1, 2], "before.x": [None, 1],
        ...     "after.x": [1, 1], "before.y": [None, 5], "after.y": [5, 6]},
        ...     schema_overrides={"op": pl.UInt8})
        >>> coalesced(frame, ["x"], ["x", "y"]).select("op", "before.y", "after.y").row(0)
        (0, None, 6)
    """
    columns = ["op", *(prefix + name for prefix in (BEFORE, AFTER) for name in names)]
    named = identities(revisions, identity).rename({name: f"@{name}" for name in identity})
    is_repeated = named.is_duplicated()
    if not is_repeated.any():
        return revisions.select(columns)
    exists = (revisions["op"] != DELETE).alias("@exists")
    runs = (
        pl.concat([revisions.with_columns(exists), named], how="horizontal")
        .filter(is_repeated)
        .sort("epoch", "@exists", maintain_order=True)
    )
    first = runs.unique(subset=named.columns, keep="first", maintain_order=True)
    final = first.select(named.columns).join(
        runs.unique(subset=named.columns, keep="last", maintain_order=True),
        on=named.columns,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    had, has = first["op"] != INSERT, final["@exists"]
    combined = between(side(first, BEFORE, names), had, side(final, AFTER, names), has)
    return pl.concat([revisions.filter(~is_repeated).select(columns), combined.select(columns)])


def last(revisions: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Return the last revision of each identity: by epoch, and within an epoch deletes first.

    Args:
        revisions: With their ``epoch``, in any order.
        identity: Fields that name a tuple.
    """
    named = identities(revisions, identity).rename({name: f"@{name}" for name in identity})
    exists = (revisions["op"] != DELETE).alias("@exists")
    return (
        pl.concat([revisions.with_columns(exists), named], how="horizontal")
        .sort("epoch", "@exists", maintain_order=True)
        .unique(subset=named.columns, keep="last", maintain_order=True)
        .select(revisions.columns)
    )


def fold(revisions: pl.DataFrame, identity: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Return the tuples that remain after all revisions, applied by epoch, never by log order.

    Example:
        >>> frame = pl.DataFrame({"op": [0, 2], "epoch": [1, 2], "before.x": [None, 1],
        ...     "after.x": [1, 1], "before.y": [None, 5], "after.y": [5, 6]})
        >>> fold(frame, ["x"], ["x", "y"])["y"].to_list()
        [6]
    """
    return entering(last(revisions, identity), names)
