"""The envelope ``upsert``: a record is the new tuple of its identity; no value deletes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from errata.processors.envelopes.append import entering
from errata.processors.envelopes.batch import (
    ROW,
    Batch,
    Decoded,
    Refusal,
    Tuples,
    is_nameless,
    join_parts,
    split_nulls,
    with_all_columns,
)
from errata.processors.envelopes.keys import Keys
from errata.schemas.fields import Fields
from errata.schemas.revisions import BEFORE, DELETE


@dataclass
class Upsert:
    """Decodes upserts.

    Args:
        fields: The declared fields.
        identity: The identity fields.
        tuples: Reads values.
        keys: Reads keys; used only where a value is missing or lacks the identity.
    """

    fields: Fields
    identity: Sequence[str]
    tuples: Tuples
    keys: Keys

    def decode(self, batch: Batch) -> Decoded:
        """Return an insert for each value, and a delete for each record without one.

        Reconciling with the arc turns inserts of known identities into replaces. Identity fields
        that the value lacks are read from the key.
        """
        rows, values, absent = split_nulls(batch.values)
        decoded = self.tuples(values).with_rows(rows)
        absent += decoded.absent
        tuples, refused = self._named(decoded.frame, batch.keys)
        parts = [Decoded(entering(self.fields, tuples), decoded.refused + refused)]
        if absent:
            parts.append(deletes(self.fields, self.keys, sorted(absent), batch.keys))
        return join_parts(parts)

    def _named(
        self, tuples: pl.DataFrame, keys: Sequence[bytes | None]
    ) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return tuples with missing identity fields filled in from their keys, and refusals."""
        nameless = is_nameless(self.fields, self.identity)
        incomplete = tuples.filter(nameless)
        if incomplete.is_empty():
            return tuples, []
        from_keys = identities(self.keys, incomplete[ROW].to_list(), keys)
        completed_tuples = incomplete.join(
            from_keys.frame, on=ROW, how="inner", suffix="@", maintain_order="left"
        )
        completed_tuples = completed_tuples.with_columns(
            pl.coalesce(name, f"{name}@").alias(name) for name in self.identity
        )
        both = pl.concat([tuples.filter(~nameless), completed_tuples.select(tuples.columns)])
        return both.sort(ROW), from_keys.refused


def identities(keys: Keys, rows: Sequence[int], all_keys: Sequence[bytes | None]) -> Decoded:
    """Return the identities in the keys of some records of a batch."""
    return keys.read([all_keys[row] for row in rows]).with_rows(np.array(rows, np.int64))


def deletes(
    fields: Fields, keys: Keys, rows: Sequence[int], all_keys: Sequence[bytes | None]
) -> Decoded:
    """Return deletes of the identities in the keys of some records."""
    from_keys = identities(keys, rows, all_keys)
    frame = from_keys.frame.rename({name: BEFORE + name for name in keys.identity})
    frame = frame.with_columns(pl.lit(DELETE, pl.UInt8).alias("op"))
    return Decoded(with_all_columns(fields, frame), from_keys.refused)
