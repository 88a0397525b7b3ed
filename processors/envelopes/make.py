"""The envelope of a source, chosen by what it declares."""

from __future__ import annotations

from typing import Protocol

from processors.envelopes import debezium, native
from processors.envelopes.append import Append
from processors.envelopes.avro_format import AvroFormat
from processors.envelopes.checks import Batch, Decoded
from processors.envelopes.csv_format import CsvFormat
from processors.envelopes.json_format import JsonFormat
from processors.envelopes.keys import Keys
from processors.envelopes.upsert import Upsert
from processors.typed import Source
from schemas.arc import HIDDEN_PREFIX
from topics.registry import Registry


class Envelope(Protocol):
    """How a record of a user's topic says what was revised."""

    def decode(self, batch: Batch) -> Decoded:
        """Return the revisions of a batch, unchecked, and what can't be taken in."""


def make(source: Source, registry: Registry) -> Envelope:
    """Return the envelope of a source.

    Args:
        source: The source, whose envelope comes in its format.
        registry: Where its writers' schemas are.
    """
    arc = source.arc
    fields = {n: kind for n, kind in arc.fields.items() if not n.startswith(HIDDEN_PREFIX)}
    identity, connector = arc.identity, source.envelope == "debezium"
    keys = Keys({name: fields[name] for name in identity}, registry)
    ops = debezium.CODES if connector else native.CODES
    form: AvroFormat | JsonFormat | CsvFormat
    if source.format == "avro":
        form = AvroFormat(fields, registry, identity=identity, ops=ops, connector=connector)
    elif source.format == "json":
        form = JsonFormat(fields, ops=ops, connector=connector)
    else:
        form = CsvFormat(fields)
    if source.envelope == "append":
        return Append(fields, form.tuples)
    if source.envelope == "upsert":
        return Upsert(fields, identity, form.tuples, keys)
    assert not isinstance(form, CsvFormat)  # typing a source sees to it
    if connector:
        return debezium.Debezium(fields, identity, form.revisions, keys)
    return native.Native(form.revisions)
