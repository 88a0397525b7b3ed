"""The envelope ``native``: ``op`` (insert, delete, replace), ``before`` and ``after``: a revision.

Whoever wrote it: task, attempt and epoch are not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from processors.dead_letter import UNDECODABLE
from processors.envelopes.checks import Batch, Decoded, Refusal, completed, valued
from processors.envelopes.formats import Revisions
from schemas.fields import Fields
from schemas.revisions import OPS

_CODES = {name: code for code, name in enumerate(OPS)}


@dataclass
class Native:
    """Decodes revisions.

    Args:
        fields: The declared fields.
        revisions: Reads values.
    """

    fields: Fields
    revisions: Revisions

    def decode(self, batch: Batch) -> Decoded:
        """Return the revisions of a batch; a record without a value is refused."""
        rows, values = valued(batch.values)
        found = self.revisions(values).placed(rows)
        void = [*np.setdiff1d(np.arange(len(batch.values)), rows).tolist(), *found.absent]
        refused = [Refusal(row, UNDECODABLE, "no value: a tombstone") for row in void]
        op = pl.col("op").replace_strict(_CODES, default=None)
        return Decoded(completed(self.fields, found.frame, op=op), found.refused + refused)
