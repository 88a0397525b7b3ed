"""The native envelope in Avro: our revision, whoever wrote it, by its writer's schema.

A writer's record needs ``op`` and ``after`` or ``before``; task, attempt and epoch are not asked
for, further fields are passed over, and the order of fields is the writer's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from processors.dead_letter import UNDECODABLE
from processors.envelopes.checks import ROW, Decoded, Refusal, check, columns, nothing
from schemas import framing
from schemas import revisions as frames
from schemas.arc import Arc
from schemas.decode import Decoder
from schemas.errors import ErrataError
from schemas.fields import FieldType
from schemas.layout import Leaf, Nested
from topics.registry import Registry


class WriterSchemaError(ErrataError):
    """A writer's schema does not give what the source declares."""


@dataclass
class NativeAvro:
    """Decodes native revisions in Avro behind a schema id.

    Args:
        arc: The source's arc.
        registry: Where the writers' schemas are.
    """

    arc: Arc
    registry: Registry
    writers: dict[int, Writer | str] = field(default_factory=dict)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return the revisions of a batch, in order, and what can't be taken in."""
        found = framing.unframe(values)
        refused = [Refusal(row, UNDECODABLE, why) for row, why in found.rejected]
        parts = []
        for schema_id in sorted(set(found.schema_ids.tolist()) - {framing.UNFRAMED}):
            rows, bodies = np.arange(len(values)), found.bodies
            if found.only_id is None:
                rows = np.flatnonzero(found.schema_ids == schema_id)
                bodies = [found.bodies[row] for row in rows.tolist()]
            writer = self._writer(schema_id)
            if isinstance(writer, str):
                refused += [Refusal(row, UNDECODABLE, writer) for row in rows.tolist()]
                continue
            part = writer.decode(bodies)
            places = pl.Series(rows)
            parts.append(part.frame.with_columns(places.gather(part.frame[ROW]).alias(ROW)))
            refused += [Refusal(int(rows[r.row]), r.reason, r.detail) for r in part.refused]
        frame = pl.concat(parts) if parts else nothing(self.arc)
        return Decoded(frame.sort(ROW) if len(parts) > 1 else frame, refused)

    def _writer(self, schema_id: int) -> Writer | str:
        if schema_id not in self.writers:
            try:
                self.writers[schema_id] = Writer(self.arc, self.registry.schema(schema_id))
            except WriterSchemaError as error:
                self.writers[schema_id] = f"schema id {schema_id}: {error}"
            except ErrataError as error:
                return f"schema id {schema_id}: {error}"  # it may be registered yet
        return self.writers[schema_id]


class Writer:
    """Decodes the records of one writer's schema.

    Raises:
        WriterSchemaError: If the schema lacks a declared field or gives it another type.
        UnsupportedSchemaError: If it is not flat.
    """

    def __init__(self, arc: Arc, schema: object) -> None:
        self.arc, self.decoder = arc, Decoder(schema)
        fields = {f.name: f for f in self.decoder.layout}
        self.sides = {}
        for side in ("before", "after"):
            nested = fields.get(side)
            if not isinstance(nested, Nested):
                if side == "after":
                    raise WriterSchemaError("needs a record field 'after', found none")
                continue
            self.sides[side] = nested
        op = fields.get("op")
        if not isinstance(op, Leaf) or not (op.symbols or op.kind == "string"):
            raise WriterSchemaError("needs a field 'op', an enum or a string, found none")
        self.op = op
        self.takes = {
            f"{side}.{name}": self._take(side, nested, name, kind)
            for side, nested in self.sides.items()
            for name, kind in arc.fields.items()
        }

    def _take(self, side: str, nested: Nested, name: str, kind: FieldType) -> pl.Expr:
        """Return how a declared field comes from the writer's."""
        column = f"{side}.{name}"
        leaf = next((leaf for leaf in nested.leaves if leaf.name == column), None)
        if leaf is None:
            needed = not kind.optional and (side == "after" or name in self.arc.identity)
            if needed:
                raise WriterSchemaError(f"missing field {name!r} in {side!r}")
            return pl.lit(None, kind.dtype).alias(column)
        taken = _converted(leaf, kind)
        if taken is None:
            found = leaf.logical or leaf.kind
            digits = f"({leaf.precision},{leaf.scale})" if leaf.logical == "decimal" else ""
            raise WriterSchemaError(f"field {name!r} needs {kind.required}, found {found}{digits}")
        return taken.alias(column)

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the revisions of a batch; ``__row`` is the place in it."""
        found = self.decoder.decode_each(bodies)
        refused = [Refusal(row, UNDECODABLE, why) for row, why in found.bad]
        frame = found.frame
        symbols = self.op.symbols or frames.OPS
        codes = {s: frames.OPS.index(s) for s in symbols if s in frames.OPS}
        told = (
            frame["op"].replace_strict(
                {self.op.symbols.index(s): code for s, code in codes.items()},
                default=None,
                return_dtype=pl.UInt8,
            )
            if self.op.symbols
            else frame["op"].replace_strict(codes, default=None, return_dtype=pl.UInt8)
        )
        has = {f"has_{side}": self._has(side, frame) for side in ("before", "after")}
        full = frame.select(
            pl.Series(ROW, found.good, dtype=pl.Int64),
            told.alias("op"),
            *self.takes.values(),
            **has,
        )
        missing = [
            pl.lit(None, kind).alias(name)
            for name, kind in columns(self.arc).items()
            if name not in full.columns
        ]
        judged = check(self.arc, full.with_columns(missing))
        return Decoded(judged.frame, refused + judged.refused)

    def _has(self, side: str, frame: pl.DataFrame) -> pl.Series:
        nested = self.sides.get(side)
        if nested is None or nested.null_at is None:
            return pl.Series([nested is not None]).new_from_index(0, frame.height)
        return frame[side]


def _converted(leaf: Leaf, kind: FieldType) -> pl.Expr | None:
    """Return a writer's field in our physical type; None if it is another type."""
    column = pl.col(leaf.name)
    if kind.kind == "decimal":
        fits = (
            leaf.logical == "decimal"
            and leaf.scale <= kind.scale
            and leaf.precision - leaf.scale <= kind.precision - kind.scale
        )
        if not fits:
            return None
        factor = 10 ** (kind.scale - leaf.scale)
        return column * pl.lit(factor, pl.Int128) if factor > 1 else column
    if kind.kind == "timestamp-millis":
        return column if leaf.logical == "timestamp-millis" else None
    if leaf.logical:
        return None
    if kind.kind == "long":
        return column.cast(pl.Int64) if leaf.kind in ("int", "long") else None
    if kind.kind == "double":
        return column.cast(pl.Float64) if leaf.kind in ("float", "double") else None
    return column if leaf.kind == kind.kind else None
