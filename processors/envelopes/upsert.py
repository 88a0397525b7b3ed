"""The envelope ``upsert``: the tuple of its identity from now on, or, without a value, none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from errata.processors.envelopes.append import entering
from errata.processors.envelopes.checks import (
    ROW,
    Batch,
    Decoded,
    Refusal,
    completed,
    joined,
    valued,
)
from errata.processors.envelopes.formats import Tuples
from errata.processors.envelopes.keys import Keys
from errata.schemas.fields import Fields
from errata.schemas.revisions import BEFORE, DELETE


@dataclass
class Upsert:
    """Decodes upserts.

    Args:
        fields: The declared fields.
        identity: Those that name a tuple.
        tuples: Reads values.
        keys: Reads keys; they are read only where a value does not tell the identity.
    """

    fields: Fields
    identity: Sequence[str]
    tuples: Tuples
    keys: Keys

    def decode(self, batch: Batch) -> Decoded:
        """Return an insert for each value (whether it replaces is judged by the arc), and deletes.

        An identity that the value lacks is the key's.
        """
        rows, values, void = valued(batch.values)
        found = self.tuples(values).placed(rows)
        void += found.absent
        tuples, refused = self._named(found.frame, batch.keys)
        parts = [Decoded(entering(self.fields, tuples), found.refused + refused)]
        if void:
            parts.append(deletes(self.fields, self.keys, sorted(void), batch.keys))
        return joined(parts)

    def _named(
        self, tuples: pl.DataFrame, keys: Sequence[bytes | None]
    ) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return tuples with the identity that their keys tell where they don't themselves."""
        nameless = pl.any_horizontal(pl.col(name).is_null() for name in self.identity)
        lacking = tuples.filter(nameless)
        if lacking.is_empty():
            return tuples, []
        told = identities(self.keys, lacking[ROW].to_list(), keys)
        known = lacking.join(told.frame, on=ROW, how="inner", suffix="@", maintain_order="left")
        known = known.with_columns(
            pl.coalesce(name, f"{name}@").alias(name) for name in self.identity
        )
        both = pl.concat([tuples.filter(~nameless), known.select(tuples.columns)])
        return both.sort(ROW), told.refused


def identities(keys: Keys, rows: Sequence[int], all_keys: Sequence[bytes | None]) -> Decoded:
    """Return what the keys of some records of a batch tell."""
    return keys.read([all_keys[row] for row in rows]).placed(np.array(rows, np.int64))


def deletes(
    fields: Fields, keys: Keys, rows: Sequence[int], all_keys: Sequence[bytes | None]
) -> Decoded:
    """Return deletes of the identities that the keys of some records tell."""
    told = identities(keys, rows, all_keys)
    frame = told.frame.rename({name: BEFORE + name for name in keys.identity})
    frame = frame.with_columns(pl.lit(DELETE, pl.UInt8).alias("op"))
    return Decoded(completed(fields, frame), told.refused)
