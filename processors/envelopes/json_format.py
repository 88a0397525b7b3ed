"""Records in JSON: one object each, or Kafka Connect's ``{"schema": ..., "payload": ...}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Protocol

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw

from errata.processors.envelopes.checks import Decoded, joined, no_tuples, nothing
from errata.processors.envelopes.connect_block import Block
from errata.processors.envelopes.json_records import RevisionReader, TupleReader, decoded_each
from errata.schemas.fields import Fields

_WRAPPED = b'{"schema":'
_MOST_READERS = 100


class Reader(Protocol):
    """Reads the objects behind one schema block."""

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return the decoded objects and the refused ones."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: Raw
    payload: Raw


_unwrap = msgspec.json.Decoder(_Wrapped).decode


class JsonFormat:
    """Reads tuples and revisions of a source in JSON.

    Args:
        fields: The declared fields.
        ops: Codes of the ops of revisions.
        connector: Whether Debezium writes the records: its heartbeats and transaction boundaries
            are skipped.
    """

    def __init__(self, fields: Fields, *, ops: Mapping[str, int], connector: bool = False) -> None:
        self.tuples = ByBlock(partial(TupleReader, fields), no_tuples(fields)).read
        sided = partial(RevisionReader, fields, ops=ops, connector=connector)
        self.revisions = ByBlock(sided, nothing(fields)).read


@dataclass
class ByBlock:
    """Reads records, with one reader per schema block.

    Args:
        reader: Makes the reader of a block.
        empty: The result for no records.
    """

    reader: Callable[[Block], Reader]
    empty: pl.DataFrame
    readers: dict[bytes, Reader] = field(default_factory=dict)

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Return the decoded records, in order, and the refused ones."""
        wrapped = pl.Series(values, dtype=pl.Binary).bin.starts_with(_WRAPPED)
        if not wrapped.any():
            return self._reader(b"").read(values)
        rows = wrapped.arg_true().to_numpy()
        found, good, _ = decoded_each(_unwrap, [values[row] for row in rows.tolist()])
        rows = rows[good]
        blocks = list(map(bytes, map(attrgetter("schema"), found)))
        payloads = list(map(bytes, map(attrgetter("payload"), found)))
        void = np.fromiter(map(b"null".__eq__, payloads), np.bool_, len(payloads))
        parts = [Decoded(self.empty, [], absent=tuple(rows[void].tolist()))]
        numbers = {block: number for number, block in enumerate(dict.fromkeys(blocks))}
        of = np.fromiter(map(numbers.__getitem__, blocks), np.int64, len(blocks))
        for block, number in numbers.items():
            own = np.flatnonzero((of == number) & ~void)
            texts = [payloads[i] for i in own.tolist()]
            parts.append(self._reader(block).read(texts).placed(rows[own]))
        others = np.ones(len(values), np.bool_)
        others[rows] = False
        plain = np.flatnonzero(others)
        if len(plain):
            texts = [values[row] for row in plain.tolist()]
            parts.append(self._reader(b"").read(texts).placed(plain))
        return joined(parts)

    def _reader(self, block: bytes) -> Reader:
        if block not in self.readers:
            if len(self.readers) > _MOST_READERS:  # a new block in each record would fill memory
                self.readers.clear()
            self.readers[block] = self.reader(Block.of(block) if block else Block())
        return self.readers[block]
