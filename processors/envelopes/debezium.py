"""The envelope ``debezium``: before, after and op, as Debezium's connectors write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from errata.processors.envelopes.batch import (
    ROW,
    Batch,
    Decoded,
    Refusal,
    Revisions,
    is_nameless,
    split_nulls,
)
from errata.processors.envelopes.keys import Keys
from errata.processors.envelopes.upsert import identities
from errata.processors.wire.dead_letter import TRUNCATE
from errata.schemas.fields import Fields
from errata.schemas.revisions import AFTER, BEFORE, DELETE, INSERT, REPLACE

_MESSAGE, _TRUNCATED = 8, 9
CODES = {
    "c": INSERT,
    "r": INSERT,
    "u": REPLACE,
    "d": DELETE,
    "m": _MESSAGE,
    "t": _TRUNCATED,
}
_TRUNCATED_DETAIL = (
    "the table was truncated, but the event does not name the deleted tuples: the arc keeps them; "
    "delete them one by one, or declare the source again under another name"
)


@dataclass
class Debezium:
    """Decodes change events.

    Skipped and counted: tombstones (the delete precedes them), messages of the database's log,
    heartbeats and transaction boundaries. A truncation is refused.

    Args:
        fields: The declared fields.
        identity: The identity fields.
        revisions: Reads values.
        keys: Reads keys; used only where a delete lacks the identity.
    """

    fields: Fields
    identity: Sequence[str]
    revisions: Revisions
    keys: Keys

    def decode(self, batch: Batch) -> Decoded:
        """Return the revisions of a batch.

        A ``before`` with the key alone, as databases send by default, is no original: it has no
        values to compare with the arc's.
        """
        rows, values, absent = split_nulls(batch.values)
        decoded = self.revisions(values).with_rows(rows)
        passed = decoded.passed + len(absent) + len(decoded.absent)
        frame, refused = decoded.frame, decoded.refused
        truncated = frame.filter(pl.col("op") == _TRUNCATED)[ROW].to_list()
        refused = refused + [Refusal(row, TRUNCATE, _TRUNCATED_DETAIL) for row in truncated]
        kept = frame.filter(~pl.col("op").is_in([_MESSAGE, _TRUNCATED]).fill_null(False))
        passed += frame.height - kept.height - len(truncated)
        frame = kept.with_columns(self._has_original().alias("has_before"))
        lacks_identity = is_nameless(self.fields, self.identity, BEFORE)
        nameless = (pl.col("op") == DELETE) & lacks_identity
        incomplete = frame.filter(nameless)[ROW].to_list()
        if incomplete:
            from_keys = identities(self.keys, incomplete, batch.keys)
            frame = frame.join(from_keys.frame, on=ROW, how="left", maintain_order="left")
            frame = frame.with_columns(
                pl.coalesce(BEFORE + name, name).alias(BEFORE + name) for name in self.identity
            ).drop(self.identity)
            bad = [refusal.row for refusal in from_keys.refused]
            frame = frame.filter(~pl.col(ROW).is_in(bad))
            refused = refused + from_keys.refused
        return Decoded(frame, refused, passed)

    def _has_original(self) -> pl.Expr:
        has_values = [
            pl.col(BEFORE + n).is_not_null() for n in self.fields if n not in self.identity
        ]
        moved = [pl.col(BEFORE + n) != pl.col(AFTER + n) for n in self.identity]  # null if absent
        return pl.col("has_before") & pl.any_horizontal(*has_values, *moved).fill_null(False)
