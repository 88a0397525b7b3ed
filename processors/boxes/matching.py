"""Finds the tuples that have the values of others in some fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


def among(tuples: pl.DataFrame, keys: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Return the tuples whose fields are equal to those of some keys; null equals null.

    Args:
        tuples: The tuples.
        keys: The keys.
        names: The fields of the tuples, by field of the keys; all tuples if there are none.
    """
    if not names:
        return tuples if keys.height else tuples.clear()
    return tuples.join(
        keys, left_on=list(names.values()), right_on=list(names), how="semi", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip


def of_identities(
    arc: Arc, results: pl.DataFrame, inputs: Iterable[pl.DataFrame]
) -> list[pl.DataFrame]:
    """Return the tuples of inputs that have the identities of some results of an arc."""
    names = {name: name for name in arc.identity}
    return [among(tuples, results, names) for tuples in inputs]


def with_identities(arc: Arc, revisions: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions of tuples that are equal to some in fields of the identity.

    Args:
        arc: The arc of the revisions.
        revisions: A frame of revisions; all its columns stay.
        wanted: Values of fields of the identity.
    """
    numbered = frames.identities(revisions, arc.identity).with_row_index("@row")
    return revisions[among(numbered, wanted, {name: name for name in wanted.columns})["@row"]]
