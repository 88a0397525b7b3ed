"""Records of a user's topic as tuples: their bytes verbatim, and where they lay.

Dead letters tell of them, and a rekeyed source's exchange carries them: the task that
owns an identity reads the records again, as if they all came from one partition.
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
    "time_ms": FieldType("long"),  # of the record; whatever its producer said
    "key": FieldType("bytes", optional=True),
    "value": FieldType("bytes", optional=True),
}
NEWEST_MS = "newest_ms"
"""Event time that a record's partition had seen in epochs before, less lateness: `keep` is judged
by it, so that it does not depend on which task judges, or when."""


def original_arc(source: str) -> Arc:
    """Return the arc of a rekeyed source's exchange: an insert for each record."""
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
