"""Makes the envelope that a source declares."""

from __future__ import annotations

from typing import Protocol

from errata.processors.envelopes import debezium, native
from errata.processors.envelopes.append import Append
from errata.processors.envelopes.avro_format import AvroFormat
from errata.processors.envelopes.batch import Batch, Decoded
from errata.processors.envelopes.csv_format import CsvFormat
from errata.processors.envelopes.json_format import JsonFormat
from errata.processors.envelopes.keys import Keys
from errata.processors.envelopes.protobuf_format import ProtobufFormat
from errata.processors.envelopes.upsert import Upsert
from errata.processors.plan.topology import Source
from errata.schemas.arc import HIDDEN_PREFIX
from errata.topics.registry import Registry

_FRAMED: dict[str, type[AvroFormat]] = {
    "avro": AvroFormat,
    "protobuf": ProtobufFormat,
}
"""Formats whose records refer to a schema of the registry."""


class Envelope(Protocol):
    """Decodes records of a user's topic into revisions."""

    def decode(self, batch: Batch) -> Decoded:
        """Return the revisions of a batch, unchecked, and the refused records."""


def make(source: Source, registry: Registry) -> Envelope:
    """Return the envelope of a source.

    Args:
        source: The source; declares envelope and format.
        registry: Holds its writers' schemas.
    """
    arc = source.arc
    fields = {n: kind for n, kind in arc.fields.items() if not n.startswith(HIDDEN_PREFIX)}
    identity, connector = arc.identity, source.envelope == "debezium"
    keys = Keys({name: fields[name] for name in identity}, registry)
    ops = debezium.CODES if connector else native.CODES
    form: AvroFormat | JsonFormat | CsvFormat
    if source.format in _FRAMED:
        framed = _FRAMED[source.format]
        form = framed(fields, registry, identity=identity, ops=ops, connector=connector)
    elif source.format == "json":
        form = JsonFormat(fields, ops=ops, connector=connector)
    else:
        form = CsvFormat(fields)
    if source.envelope == "append":
        return Append(fields, form.tuples)
    if source.envelope == "upsert":
        return Upsert(fields, identity, form.tuples, keys)
    assert not isinstance(form, CsvFormat)  # the compiler refuses it
    if connector:
        return debezium.Debezium(fields, identity, form.revisions, keys)
    return native.Native(form.revisions)
