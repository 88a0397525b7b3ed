"""Records of a user's topic as tuples: their bytes, verbatim, and their position.

Dead letters hold them, and so does a rekeyed source's exchange: the task that owns an identity
decodes the records again, as if they all came from one partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from errata.processors.plan.arc_name import exchange_of
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical
from errata.topics.cluster import Records

_WHERE = {
    "partition": FieldType("int"),
    "offset": FieldType("long"),
    "time_ms": FieldType("long"),  # the record timestamp, as its producer set it
    "key": FieldType("bytes", optional=True),
    "value": FieldType("bytes", optional=True),
}
NEWEST_MS = "newest_ms"
"""Newest event time that a record's partition had seen in earlier epochs, less lateness. `keep` is
checked against it, so that the result does not depend on which task checks, or when."""


def original_arc(source: str) -> Arc:
    """Return the arc of a rekeyed source's exchange, which holds an insert for each record."""
    fields = _WHERE | {NEWEST_MS: FieldType("long")}
    where = ("partition", "offset")
    return Arc(exchange_of(source), fields, where, "time_ms", (), exchange=True)


def originals(held: Sequence[Records]) -> pl.DataFrame:
    """Return records as tuples, in order."""
    return pl.concat(
        [
            pl.DataFrame(schema=physical(_WHERE)),
            *(
                pl.DataFrame(
                    {
                        "partition": [records.source.partition] * len(records),
                        "offset": records.offsets,
                        "time_ms": list(records.times_ms),
                        "key": records.keys,
                        "value": records.values,
                    },
                    schema=physical(_WHERE),
                )
                for records in held
            ),
        ]
    )
