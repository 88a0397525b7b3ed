"""The envelope ``append``: each record is a new tuple."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.processors.envelopes.batch import (
    Batch,
    Decoded,
    Refusal,
    Tuples,
    split_nulls,
    with_all_columns,
)
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas.fields import Fields
from errata.schemas.revisions import AFTER, INSERT


@dataclass
class Append:
    """Decodes records that are new tuples.

    Args:
        fields: The declared fields.
        tuples: Reads the values.
    """

    fields: Fields
    tuples: Tuples

    def decode(self, batch: Batch) -> Decoded:
        """Return an insert for each record; one without a value is refused."""
        rows, values, absent = split_nulls(batch.values)
        decoded = self.tuples(values).with_rows(rows)
        absent += decoded.absent
        detail = "no value, but envelope append has no deletes; declare it as upsert"
        refused = [Refusal(row, UNDECODABLE, detail) for row in absent]
        return Decoded(entering(self.fields, decoded.frame), decoded.refused + refused)


def entering(fields: Fields, tuples: pl.DataFrame) -> pl.DataFrame:
    """Return tuples as inserts."""
    frame = tuples.rename({name: AFTER + name for name in fields})
    op_and_side = pl.lit(INSERT, pl.UInt8).alias("op"), pl.lit(True).alias("has_after")
    return with_all_columns(fields, frame.with_columns(*op_and_side))
