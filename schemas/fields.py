"""The field types of an arc.

A field is declared as a string (``"long"``, ``"decimal(18,2)"``, ``"string?"`` for a nullable one).
In memory a column is a polars series of the field's *physical* type: text, bytes, numbers and
booleans as themselves, a timestamp as its milliseconds or microseconds since the epoch (UTC), a
date as its days since then, a uuid as text in its canonical form (lower case), and a decimal as its
unscaled integer in 128 bits, so that its arithmetic is exact. On the wire it is the Avro type of
the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from errata.schemas.errors import ErrataError

MAX_PRECISION = 38

PHYSICAL: dict[str, type[pl.DataType]] = {
    "string": pl.String,
    "int": pl.Int32,
    "long": pl.Int64,
    "float": pl.Float32,
    "double": pl.Float64,
    "boolean": pl.Boolean,
    "bytes": pl.Binary,
    "decimal": pl.Int128,
    "date": pl.Int32,
    "timestamp-millis": pl.Int64,
    "timestamp-micros": pl.Int64,
    "uuid": pl.String,
}
_STORED_AS = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "uuid": "string",
}
"""The Avro primitive type of each logical type."""

_FORM = re.compile(
    r"(?:(?P<before>optional|nullable)\s+)?(?P<kind>[a-z][a-z-]*)"
    r"(?:\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?\s*(?P<after>\?)?"
)


class FieldTypeError(ErrataError):
    """Arcs do not support a field's type."""

    def __init__(self, declared: object, *, need: str) -> None:
        self.declared = declared
        super().__init__(f"field type {declared!r}: {need}")


@dataclass(frozen=True)
class FieldType:
    """The type of one field.

    Args:
        kind: A key of `PHYSICAL`.
        precision: Digits of a decimal, 1 to 38; 0 for other kinds.
        scale: Digits after the point of a decimal, 0 to ``precision``.
        optional: Whether the field may be null.

    Example:
        >>> FieldType.parse("decimal(18,2)?")
        FieldType(kind='decimal', precision=18, scale=2, optional=True)
        >>> str(FieldType.parse("optional decimal(18, 2)"))
        'decimal(18,2)?'
        >>> FieldType.parse("timestamp-millis").dtype
        Int64
    """

    kind: str
    precision: int = 0
    scale: int = 0
    optional: bool = False

    @classmethod
    def parse(cls, declared: str | FieldType) -> FieldType:
        """Parse a type as a user writes it.

        Raises:
            FieldTypeError: If the kind is unknown or a decimal's digits are out of bounds.
        """
        if isinstance(declared, FieldType):
            return declared
        match = _FORM.fullmatch(declared.strip()) if isinstance(declared, str) else None
        if match is None or match["kind"] not in PHYSICAL:
            raise FieldTypeError(
                declared, need="needs one of " + ", ".join(PHYSICAL) + ", with ? if it may be null"
            )
        optional = bool(match["before"] or match["after"])
        if match["kind"] != "decimal":
            if match["precision"]:
                raise FieldTypeError(declared, need="only decimal takes digits in brackets")
            return cls(match["kind"], optional=optional)
        precision, scale = int(match["precision"] or 10), int(match["scale"] or 0)
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise FieldTypeError(
                declared, need="needs decimal(p,s) with p from 1 to 38 and s from 0 to p"
            )
        return cls("decimal", precision, scale, optional)

    def __str__(self) -> str:
        digits = f"({self.precision},{self.scale})" if self.kind == "decimal" else ""
        return f"{self.kind}{digits}{'?' if self.optional else ''}"

    @property
    def dtype(self) -> type[pl.DataType]:
        """Physical polars type of a column of this field."""
        return PHYSICAL[self.kind]

    @property
    def required(self) -> FieldType:
        """The same type, not nullable."""
        return replace(self, optional=False)

    @property
    def nullable(self) -> FieldType:
        """The same type, nullable."""
        return replace(self, optional=True)

    @property
    def avro(self) -> Any:
        """Avro schema of the field; an optional one is a union with null first."""
        plain: Any = self.kind
        if self.kind == "decimal":
            plain = {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": self.precision,
                "scale": self.scale,
            }
        elif self.kind in _STORED_AS:
            plain = {"type": _STORED_AS[self.kind], "logicalType": self.kind}
        return ["null", plain] if self.optional else plain


Fields = Mapping[str, FieldType]


def physical(fields: Fields) -> dict[str, type[pl.DataType]]:
    """Return the polars schema of tuples with these fields."""
    return {name: field.dtype for name, field in fields.items()}
