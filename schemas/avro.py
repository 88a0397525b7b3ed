"""An arc in Avro: the schemas of its tuples, keys and revisions, and the codec of its revisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from errata.schemas import by_column
from errata.schemas.decode import Decoded, Decoder
from errata.schemas.encode import Encoder
from errata.schemas.fields import Fields
from errata.schemas.revisions import DELETE, INSERT, OPS, with_sides

_NAMESPACE = "errata"


def namespace(arc_name: str) -> str:
    """Return the namespace of an arc's schemas; arc names may have hyphens, Avro's may not.

    Example:
        >>> namespace("sums-sink.exchange")
        'errata.sums_sink.exchange'
    """
    return f"{_NAMESPACE}.{arc_name.replace('-', '_')}"


def tuple_schema(name: str, fields: Fields) -> dict[str, Any]:
    """Return the schema of a flat record of these fields, in their order.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> tuple_schema("Tuple", {"n": FieldType.parse("long?")})["fields"]
        [{'name': 'n', 'type': ['null', 'long'], 'default': None}]
    """
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": kind.avro} | ({"default": None} if kind.optional else {})
            for field, kind in fields.items()
        ],
    }


def key_schema(arc_name: str, fields: Fields, identity: Sequence[str]) -> dict[str, Any]:
    """Return the schema of an arc's record keys: the identity fields, in the order of identity."""
    named = {name: fields[name] for name in identity}
    return tuple_schema("Key", named) | {"namespace": namespace(arc_name)}


def revision_schema(arc_name: str, fields: Fields) -> dict[str, Any]:
    """Return the schema of an arc's revisions; the tuple type is named once.

    A null side differs from a side whose fields are all null. Enum symbols are in the order of
    `schemas.revisions.OPS`, so that an op is its index. See ``docs/protocol.md#2-revisions``.
    """
    return {
        "type": "record",
        "name": "Revision",
        "namespace": namespace(arc_name),
        "fields": [
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": list(OPS)}},
            {"name": "before", "type": ["null", tuple_schema("Tuple", fields)], "default": None},
            {"name": "after", "type": ["null", "Tuple"], "default": None},
            {"name": "task", "type": "string"},
            {"name": "attempt", "type": "long"},
            {"name": "epoch", "type": "long"},
        ],
    }


_SIDES = ("before", "after")

IDENTITY_BYTES, AFTER_BYTES = "@identity", "@after"
"""Columns that a frame of revisions may have: the encoded identity, and the encoded tuple after the
revision where there is one. What is there is not encoded again."""


class RevisionCodec:
    """Encodes and decodes the revisions of one arc.

    Args:
        arc_name: The arc's name.
        fields: Type by field name, in wire order.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> codec = RevisionCodec("prices", {"n": FieldType.parse("long")})
        >>> row = pl.DataFrame({"op": [0], "before.n": [None], "after.n": [7]})
        >>> values = codec.encode(row, task="prices.0", attempt=1, epoch=9)
        >>> codec.decode(values).row(0)
        (0, None, 7, 'prices.0', 1, 9)
    """

    def __init__(self, arc_name: str, fields: Fields) -> None:
        self.schema = revision_schema(arc_name, fields)
        self._decoder, self._encoder = Decoder(self.schema), Encoder(self.schema)

    def encode(
        self,
        revisions: pl.DataFrame,
        *,
        task: str,
        attempt: int,
        epoch: int | None = None,
        head: bytes = b"",
    ) -> list[bytes]:
        """Return an Avro body for each revision.

        Args:
            revisions: A frame of revisions, perhaps with `AFTER_BYTES`; the side that an op does
                not have is ignored.
            task: The writing task.
            attempt: Its attempt.
            epoch: The epoch of all of them; None to take the column ``epoch``.
            head: Bytes to put before each body.

        Raises:
            UnencodableError: If a value does not fit its field.
        """
        sided = with_sides(revisions)
        written: dict[str, str | int] = {"task": task, "attempt": attempt}
        written |= {} if epoch is None else {"epoch": epoch}
        known = {"after": sided[AFTER_BYTES]} if AFTER_BYTES in sided.columns else {}
        return self._encoder.series(sided, head, written, known).to_list()

    def decode(self, bodies: Sequence[bytes]) -> pl.DataFrame:
        """Return the frame of revisions, plus the columns ``task``, ``attempt`` and ``epoch``.

        Raises:
            UndecodableError: If a body is bad; it names the first.
        """
        return self.decode_each(bodies).require_all()

    def decode_each(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the valid revisions, and the index and reason of each bad record."""
        return as_revisions(self._decoder.decode_each(bodies))


def as_revisions(decoded: Decoded) -> Decoded:
    """Convert decoded records to a frame of revisions.

    An insert with a before, or any other op that contradicts the sides, is bad. The columns that
    mark the presence of a side are dropped: op implies them.

    Args:
        decoded: Records of a revision schema, whose ops are in the order of `revisions.OPS`.
    """
    op, before, after = (decoded.frame[name].to_numpy() for name in ("op", *_SIDES))
    valid = (before == (op != INSERT)) & (after == (op != DELETE))
    names = [name for name in decoded.frame.columns if name not in _SIDES]
    frame = by_column.pick(decoded.frame, names)
    if valid.all():
        return decoded._replace(frame=frame)
    reason = "op does not match which of before and after are present"
    bad = [(index, reason) for index in decoded.good[~valid].tolist()]
    frame = frame.filter(pl.Series(valid))
    return Decoded(frame, decoded.good[np.flatnonzero(valid)], sorted(decoded.bad + bad))
