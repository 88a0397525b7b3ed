"""Formats columns as JSON texts, all rows at once; numbers keep all their digits."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from errata.schemas.fields import Fields, FieldType

_ESCAPES = {'"': '\\"', "\\": "\\\\"} | {chr(c): f"\\u{c:04x}" for c in range(32)}

NULL = pl.lit("null")


def quoted(text: pl.Expr) -> pl.Expr:
    """Return texts as JSON strings; null stays null."""
    escaped = text.str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
    return pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))


def json_value(column: pl.Expr, kind: FieldType) -> pl.Expr:
    """Return a column of a physical type as JSON; a null becomes the text ``null``.

    Decimals are numbers, timestamps integers in their unit, dates ISO-8601, bytes base64. Values
    that JSON can't represent as numbers (NaN, the infinities) are null.

    Example:
        >>> cents = pl.DataFrame({"p": [-5, None]}, schema={"p": pl.Int128})
        >>> kind = FieldType.parse("decimal(9,2)?")
        >>> cents.select(json_value(pl.col("p"), kind)).to_series().to_list()
        ['-0.05', 'null']
    """
    return _text(column, kind).fill_null("null")


def _text(column: pl.Expr, kind: FieldType) -> pl.Expr:
    if kind.kind in ("string", "uuid"):
        return quoted(column)
    if kind.kind == "bytes":
        return quoted(column.bin.encode("base64"))
    if kind.kind == "date":
        return quoted(column.cast(pl.Date).cast(pl.String))
    if kind.kind in ("float", "double"):
        return pl.when(column.is_finite()).then(column.cast(pl.String))
    if kind.kind == "decimal" and kind.scale:
        digits = column.cast(pl.String).str.strip_prefix("-").str.zfill(kind.scale + 1)
        sign = pl.when(column < 0).then(pl.lit("-")).otherwise(pl.lit(""))
        return pl.concat_str(
            sign, digits.str.head(-kind.scale), pl.lit("."), digits.str.tail(kind.scale)
        )
    return column.cast(pl.String)


def json_object(members: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return JSON objects whose members are already JSON."""
    parts = [pl.lit("{")]
    for place, (name, value) in enumerate(members.items()):
        parts += [pl.lit(f'{"," if place else ""}"{name}":'), value]
    return pl.concat_str(*parts, pl.lit("}"))


def json_tuple(fields: Fields, *, prefix: str = "") -> pl.Expr:
    """Return tuples as JSON objects.

    Args:
        fields: The members, in this order.
        prefix: Prefix of the columns' names.
    """
    return json_object({n: json_value(pl.col(prefix + n), kind) for n, kind in fields.items()})
