"""Records in Avro behind a schema id, each read by its writer's schema.

A writer may order its fields differently, have more of them, of any shape, and use narrower types.
Debezium's and Connect's names for types are honoured (`processors.envelopes.meanings`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from errata.processors.envelopes.avro_writer import Read, revisions_of, says_nothing, tuples_of
from errata.processors.envelopes.checks import Decoded, Refusal, joined, no_tuples, nothing
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas import framing
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields
from errata.topics.registry import NotAvroError, Registry, UnknownSchemaError


@dataclass
class BySchema:
    """Reads framed records, with one reader per schema id.

    Args:
        registry: Holds the writers' schemas.
        reader: Makes the reader of a schema.
        empty: The result for no records.
    """

    registry: Registry
    reader: Callable[[Any], Read]
    empty: Decoded
    readers: dict[int, Read | str] = field(default_factory=dict)

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Return the decoded records, in order, and the refused ones."""
        found = framing.unframe(values)
        if found.only_id is not None:
            return self._read(found.only_id, found.bodies)
        refused = [Refusal(row, UNDECODABLE, why) for row, why in found.rejected]
        parts = [Decoded(self.empty.frame, refused)]
        for schema_id in sorted(set(found.schema_ids.tolist()) - {framing.UNFRAMED}):
            rows = np.flatnonzero(found.schema_ids == schema_id)
            bodies = [found.bodies[row] for row in rows.tolist()]
            parts.append(self._read(schema_id, bodies).placed(rows))
        return joined(parts)

    def _read(self, schema_id: int, bodies: Sequence[bytes]) -> Decoded:
        read = self._reader(schema_id)
        if not isinstance(read, str):
            return read(bodies)
        refused = [Refusal(row, UNDECODABLE, read) for row in range(len(bodies))]
        return Decoded(self.empty.frame, refused)

    def _reader(self, schema_id: int) -> Read | str:
        if schema_id not in self.readers:
            try:
                schema = self.registry.schema(schema_id)
            except (UnknownSchemaError, NotAvroError) as error:
                return f"schema id {schema_id}: {error}"  # not cached: it may be registered later
            try:
                self.readers[schema_id] = self.reader(schema)
            except ErrataError as error:
                self.readers[schema_id] = f"schema id {schema_id}: {error}"
        return self.readers[schema_id]


class AvroFormat:
    """Reads tuples and revisions of a source in Avro.

    Args:
        fields: The declared fields.
        registry: Holds the writers' schemas.
        identity: The identity fields; a tuple may lack them, as its key has them.
        ops: Codes of the ops of revisions.
        connector: Whether Debezium writes the records: its heartbeats and transaction boundaries
            are skipped.
    """

    def __init__(
        self,
        fields: Fields,
        registry: Registry,
        *,
        identity: Collection[str],
        ops: Mapping[str, int],
        connector: bool = False,
    ) -> None:
        flat = partial(tuples_of, fields=fields, missing=identity)
        self.tuples = BySchema(registry, flat, Decoded(no_tuples(fields), [])).read
        empty = Decoded(nothing(fields), [])

        def sided(schema: Any) -> Read:
            if connector and says_nothing(schema):
                return lambda bodies: Decoded(empty.frame, [], passed=len(bodies))
            return revisions_of(schema, fields, identity=identity, ops=ops)

        self.revisions = BySchema(registry, sided, empty).read
