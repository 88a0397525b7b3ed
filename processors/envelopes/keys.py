"""Reads identities from record keys, in any of the usual forms.

The forms are Avro or Protobuf behind a schema id, a JSON object (also behind a schema block), and,
where the identity is one field, that value alone: in Avro, as JSON text, or as plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from errata.processors.envelopes.avro_format import BySchema, Read, tuple_reader
from errata.processors.envelopes.batch import (
    ROW,
    ColumnBuilder,
    Decoded,
    Refusal,
    is_nameless,
    join_parts,
    no_tuples,
    split_nulls,
)
from errata.processors.envelopes.connect import Block
from errata.processors.envelopes.json_format import ByBlock, TupleReader
from errata.processors.envelopes.protobuf_format import by_message
from errata.processors.envelopes.texts import decode_utf8, parse
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas import framing
from errata.schemas.fields import FieldType
from errata.topics.registry import Registry

_NEED = "the identity is needed from the key, which "


class Keys:
    """Reads identities from record keys.

    Args:
        identity: The identity fields, with their types.
        registry: Holds the schemas of keys in Avro and Protobuf.
    """

    def __init__(self, identity: Mapping[str, FieldType], registry: Registry) -> None:
        self.identity = identity
        self.empty = no_tuples(identity)
        nothing = Decoded(self.empty, [])
        message = partial(tuple_reader, fields=identity)
        of_protobuf = partial(by_message, reader=message, empty=nothing)
        self._framed = BySchema(registry, partial(_avro_key, identity), nothing, of_protobuf)
        self._json = ByBlock(partial(_JsonKeys, identity), self.empty)

    def read(self, keys: Sequence[bytes | None]) -> Decoded:
        """Return the identities, one column per field, and refusals of keys without one."""
        rows, present, without_key = split_nulls(keys)
        parts = [Decoded(self.empty, _refused(without_key, "is missing"))]
        column = pl.Series(present, dtype=pl.Binary)
        framed = column.bin.starts_with(b"\0") & (column.bin.size() >= framing.HEAD_BYTES)
        objects = column.bin.starts_with(b"{") | column.bin.starts_with(b'"')
        for read, chosen in (
            (self._framed.read, framed),
            (self._json.read, objects),
            (self._plain, ~framed & ~objects),
        ):
            indexes = chosen.arg_true().to_numpy()
            if len(indexes):
                parts.append(read([present[i] for i in indexes.tolist()]).with_rows(rows[indexes]))
        identities = join_parts(parts)
        nameless = is_nameless(self.identity, list(self.identity))
        incomplete = identities.frame.filter(nameless)[ROW].to_list()
        refused = _refused(identities.absent, "is null") + _refused(
            incomplete, "lacks a part of it"
        )
        return Decoded(identities.frame.filter(~nameless), identities.refused + refused)

    def _plain(self, keys: Sequence[bytes]) -> Decoded:
        if len(self.identity) > 1:
            reason = f"is neither Avro nor a JSON object with {', '.join(self.identity)}"
            return Decoded(self.empty, _refused(range(len(keys)), reason))
        ((name, kind),) = self.identity.items()
        original, builder = pl.Series(keys, dtype=pl.Binary), ColumnBuilder()
        column = parse(decode_utf8(original), kind)
        builder.columns[name] = builder.checked(name, column, original=original, kind=kind)
        return builder.decoded(np.arange(len(keys)))


def _refused(rows: Sequence[int], reason: str) -> list[Refusal]:
    return [Refusal(row, UNDECODABLE, _NEED + reason) for row in rows]


def _avro_key(identity: Mapping[str, FieldType], schema: Any) -> Read:
    """Return the reader of Avro keys of one schema; a bare value is read as a one-field record."""
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind != "record" and len(identity) == 1:
        (name,) = identity
        schema = {"type": "record", "name": "Key", "fields": [{"name": name, "type": schema}]}
    return tuple_reader(schema, identity)


class _JsonKeys(TupleReader):
    """Reads JSON keys; a bare value is read as an object of one field."""

    def __init__(self, identity: Mapping[str, FieldType], block: Block) -> None:
        super().__init__(identity, block)
        self.names = list(identity)

    def read(self, texts: Sequence[bytes]) -> Decoded:
        if len(self.names) == 1:
            head = b'{"%s":' % self.names[0].encode()
            texts = [text if text[:1] == b"{" else head + text + b"}" for text in texts]
        return super().read(texts)
