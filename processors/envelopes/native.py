"""The envelope ``native``: a revision as ``op`` (insert, delete, replace), ``before``, ``after``.

Any producer may write it: task, attempt and epoch are not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.envelopes.batch import Batch, Decoded, Refusal, Revisions, split_nulls
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas.revisions import OPS

CODES = {name: code for code, name in enumerate(OPS)}


@dataclass
class Native:
    """Decodes revisions.

    Args:
        revisions: Reads values.
    """

    revisions: Revisions

    def decode(self, batch: Batch) -> Decoded:
        """Return the revisions of a batch; a record without a value is refused."""
        rows, values, absent = split_nulls(batch.values)
        decoded = self.revisions(values).with_rows(rows)
        absent += decoded.absent
        refused = [Refusal(row, UNDECODABLE, "no value: a tombstone") for row in absent]
        return Decoded(decoded.frame, decoded.refused + refused)
