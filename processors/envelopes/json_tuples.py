"""JSON objects of declared fields to columns.

Objects are decoded into structs by compiled code, and a column is what one attribute of them all
holds. What JSON has no type for (decimals, times, uuids, bytes) stays a text until it is a column,
so that numbers are read digit by digit, never through a double.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import UNSET, Meta, Raw, UnsetType

from errata.processors.envelopes.connect_block import Block
from errata.processors.envelopes.made import Made
from errata.processors.envelopes.meanings import DECIMAL, VARIABLE, instant, is_instant
from errata.processors.envelopes.texts import decoded, parsed, rescaled
from errata.schemas.decode import unscaled
from errata.schemas.fields import Fields, FieldType

Places = npt.NDArray[np.int64]

_HELD: dict[str, Any] = {
    "string": str,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "long": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "float": float,
    "double": float,
    "boolean": bool,
}
"""What msgspec holds to its type; of all else it passes on the text."""

_NONE = {UNSET: None}
_HINT = "; base64 of a decimal is read only with a schema block that tells its scale"


class VariableScale(msgspec.Struct, eq=False, gc=False):
    """Debezium's decimal that brings its scale."""

    scale: Annotated[int, Meta(ge=-1000, le=1000)]
    value: bytes


class JsonTuples:
    """Makes columns of JSON objects.

    Args:
        fields: The declared fields; others are passed over.
        block: What the schema block in front of them says of the fields, if there is one.
    """

    def __init__(self, fields: Fields, block: Block) -> None:
        self.fields, self.block = fields, block
        self.meanings = {name: block.meanings.get(name, "") for name in fields}
        held = {name: self._held(name, kind) for name, kind in fields.items()}
        self.raw = {name for name, kept in held.items() if kept is Raw}
        attributes = [
            (name, Raw, Raw()) if name in self.raw else (name, kept | None | UnsetType, UNSET)
            for name, kept in held.items()
        ]
        self.struct: Any = msgspec.defstruct("Tuple", attributes, gc=False, eq=False)

    def _held(self, name: str, kind: FieldType) -> Any:
        return VariableScale if self.meanings[name] == VARIABLE else _HELD.get(kind.kind, Raw)

    def columns(
        self, made: Made, found: Sequence[Any], places: Places, *, prefix: str = ""
    ) -> tuple[dict[str, pl.Series], int]:
        """Return a column for each field, and how many fields all objects together have.

        Args:
            made: Where faults are noted.
            found: Structs.
            places: Where each belongs.
            prefix: Put before the fields' names.
        """
        if not len(found):
            return {prefix + n: pl.Series([], dtype=k.dtype) for n, k in self.fields.items()}, 0
        columns, there = {}, 0
        for name, kind in self.fields.items():
            values = list(map(attrgetter(name), found))
            if name in self.raw:
                pieces = pl.Series(list(map(bytes, values)), dtype=pl.Binary)
                there += int((pieces.bin.size() > 0).sum())
                given, column, hint = self._of_texts(name, kind, pieces)
            else:
                missing = values.count(UNSET)
                there += len(values) - missing
                if missing:
                    values = list(map(_NONE.get, values, values))
                given, column, hint = self._of_values(name, kind, values)
            columns[prefix + name] = made.checked(
                name, column, given=given, kind=kind, places=places, hint=hint
            )
        return columns, there

    def _of_values(
        self, name: str, kind: FieldType, values: list[Any]
    ) -> tuple[pl.Series, pl.Series, str]:
        if self.meanings[name] == VARIABLE:
            found = [(None, None) if v is None else (v.scale, v.value) for v in values]
            given = pl.Series([value for _, value in found], dtype=pl.Binary)
            scales = pl.Series([scale for scale, _ in found], dtype=pl.Int64)
            return given, rescaled(_unscaled(given), scales, kind), ""
        if kind.kind != "float":
            given = pl.Series(values, dtype=kind.dtype)
            return given, given, ""
        given = pl.Series(values, dtype=pl.Float64)
        column = given.cast(pl.Float32)
        return given, column.zip_with(column.is_finite().fill_null(False), column.clear(1)), ""

    def _of_texts(
        self, name: str, kind: FieldType, pieces: pl.Series
    ) -> tuple[pl.Series, pl.Series, str]:
        """Return what pieces of JSON (numbers, texts, null) were, and are made of."""
        given = decoded(pieces).fill_null("\ufffd")  # no UTF-8: fits nothing
        null = given.is_in(["null", ""])
        if null.any():
            given = given.zip_with(~null, given.clear(1))
        quoted, texts = given.str.starts_with('"'), given
        if quoted.any():
            texts = given.str.strip_prefix('"').str.strip_suffix('"')
            texts = texts.str.replace_all("\\/", "/", literal=True)
        meaning = self.meanings[name]
        if kind.kind == "decimal" and meaning == DECIMAL:
            coded = texts.zip_with(quoted.fill_null(False), texts.clear(1))
            scale = pl.Series([self.block.scales[name]]).new_from_index(0, len(texts))
            column = rescaled(_unscaled(parsed(coded, FieldType("bytes"))), scale, kind)
            return given, column.zip_with(coded.is_not_null(), parsed(texts, kind)), ""
        if kind.kind.startswith("timestamp-") and is_instant(meaning):
            counted = parsed(texts, FieldType("long"))
            return given, instant(counted, meaning, kind), f", which is a {meaning}"
        hint = _HINT if kind.kind == "decimal" and quoted.any() else ""
        return given, parsed(texts, kind), hint


def _unscaled(binary: pl.Series) -> pl.Series:
    """Return big-endian numbers, null where they are null or take more than 128 bits."""
    numbers, wide = unscaled(binary.fill_null(b"").to_list())
    numbers = numbers.zip_with(binary.is_not_null(), numbers.clear(1))
    return numbers.scatter(wide, None) if wide else numbers
