"""Parses texts into values of a field's type, by column: from JSON, CSV and plain keys.

A text that does not fit its type becomes null; the caller tells it apart from a null in the input.
Nothing is rounded, except doubles and floats (to the nearest) and instants (truncated).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from errata.schemas.decode import malformed
from errata.schemas.fields import MAX_PRECISION, FieldType

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,4})?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INSTANT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2})?)?)?$"
)
_UUID = r"^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_UUID_PARTS = r"^(.{8})-?(.{4})-?(.{4})-?(.{4})-?(.{12})$"
_PER_MICRO = {"timestamp-micros": 1, "timestamp-millis": 1000}


def parse(texts: pl.Series, kind: FieldType) -> pl.Series:
    """Parse texts into the physical type of a field; null where a text does not fit.

    Numbers are written as in JSON (decimals may also have a + and leading zeros), booleans as true,
    false, 1 or 0, bytes in base64, dates as ``2024-01-31`` or days since 1970. Instants are in
    ISO-8601 (UTC without an offset), or whole milli- or microseconds, depending on the type. Uuids
    are 32 hexadecimal digits, in any case, with or without hyphens.

    Example:
        >>> parse(pl.Series(["1.50", "1.505", "-2e3"]), FieldType.parse("decimal(9,2)")).to_list()
        [150, None, -200000]
        >>> parse(pl.Series(["1970-01-01T01:00+01:00", "5"]), FieldType("timestamp-millis")
        ...     ).to_list()
        [0, 5]
    """
    return _READ[kind.kind](texts, kind)


def decode_utf8(pieces: pl.Series) -> pl.Series:
    r"""Decode bytes as UTF-8 texts; null where they are not UTF-8.

    Example:
        >>> decode_utf8(pl.Series([b"a", b"\xff"])).to_list()
        ['a', None]
    """
    try:
        return pieces.cast(pl.String)
    except pl.exceptions.ComputeError:  # some value is not UTF-8: find out which
        array = pieces.to_arrow().cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bad = malformed(
            np.frombuffer(data, np.uint8),
            np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1],
        )
        nothing = pl.Series([None], dtype=pl.Binary).to_arrow()[0]
        return pl.Series(
            pc.if_else(pl.Series(bad).to_arrow(), nothing, array).cast(pa.large_string())
        )


def rescale(unscaled: pl.Series, scales: pl.Series, kind: FieldType) -> pl.Series:
    """Convert decimals of differing scales to unscaled integers of one type; null if not fitting.

    Args:
        unscaled: Int128.
        scales: Digits after the point of each; a negative one counts zeros before the point.
        kind: The resulting decimal type.
    """
    result = pl.Series([None], dtype=pl.Int128).new_from_index(0, len(unscaled))
    shifts = kind.scale - scales.cast(pl.Int64)
    for shift in shifts.drop_nulls().unique().to_list():
        has_shift = (shifts == shift).fill_null(False)
        if abs(shift) <= MAX_PRECISION:
            moved = _shifted(unscaled, shift, kind)
        else:  # only zero fits
            moved = _where(unscaled == 0, unscaled)
        result = moved.zip_with(has_shift, result)
    return result


def _shifted(unscaled: pl.Series, shift: int, kind: FieldType) -> pl.Series:
    """Multiply integers by a power of ten; null where the result is no integer or too long."""
    most = 10**kind.precision - 1
    power = pl.Series([10 ** abs(shift)], dtype=pl.Int128)
    if shift >= 0:
        return _within(unscaled, most // 10**shift) * power
    return _within(_where(unscaled % power == 0, unscaled) // power, most)


def _within(values: pl.Series, most: int) -> pl.Series:
    least, largest = (pl.Series([bound], dtype=pl.Int128) for bound in (-most, most))
    return _where((values >= least) & (values <= largest), values)


def _where(condition: pl.Series, values: pl.Series) -> pl.Series:
    known = condition.fill_null(False) if condition.null_count() else condition
    return values.zip_with(known, values.clear(1))


def _string(texts: pl.Series, kind: FieldType) -> pl.Series:
    return texts


def _whole(texts: pl.Series, kind: FieldType) -> pl.Series:
    return _where(texts.str.contains(_WHOLE), texts).cast(kind.dtype, strict=False)


def _float(texts: pl.Series, kind: FieldType) -> pl.Series:
    values = _where(texts.str.contains(_NUMBER), texts).cast(kind.dtype, strict=False)
    return _where(values.is_finite(), values)


def _boolean(texts: pl.Series, kind: FieldType) -> pl.Series:
    values = {"true": True, "false": False, "1": True, "0": False}
    return texts.str.to_lowercase().replace_strict(values, default=None, return_dtype=pl.Boolean)


def _bytes(texts: pl.Series, kind: FieldType) -> pl.Series:
    return texts.str.decode("base64", strict=False)


def _decimal(texts: pl.Series, kind: FieldType) -> pl.Series:
    numbers = _where(texts.str.contains(_NUMBER), texts).str.strip_prefix("+")
    exponents = None
    if numbers.str.contains("[eE]").any():
        parts = numbers.str.to_lowercase().str.split_exact("e", 1).struct
        numbers, exponents = parts.field("field_0"), parts.field("field_1")
        exponents = exponents.str.strip_prefix("+").cast(pl.Int64, strict=False).fill_null(0)
    point = numbers.str.find(".", literal=True)
    if point.null_count() < len(point):
        places = (numbers.str.len_bytes().cast(pl.Int64) - point - 1).fill_null(0)
        numbers = numbers.str.replace(".", "", literal=True)
    else:
        places = pl.Series([0], dtype=pl.Int64).new_from_index(0, len(texts))
    unscaled = numbers.cast(pl.Int128, strict=False)
    return rescale(unscaled, places if exponents is None else places - exponents, kind)


def _days(texts: pl.Series) -> pl.Series:
    return texts.str.to_date("%Y-%m-%d", strict=False).to_physical()


def _date(texts: pl.Series, kind: FieldType) -> pl.Series:
    dated = texts.str.contains(_DATE).fill_null(False)
    if dated.all():
        return _days(texts)
    return _days(_where(dated, texts)).zip_with(dated, _whole(texts, kind))


def _instant(texts: pl.Series, kind: FieldType) -> pl.Series:
    whole = _whole(texts, kind)
    if whole.null_count() == texts.null_count():
        return whole
    parts = texts.str.extract_groups(_INSTANT)
    fields = [parts.struct.field(str(n)) for n in range(1, 9)]
    days, sign, fraction = _days(fields[0]).cast(pl.Int64), fields[5], fields[4]
    hour, minute, second, ahead, more = (
        fields[n].cast(pl.Int64).fill_null(0) for n in (1, 2, 3, 6, 7)
    )
    micros = fraction.str.pad_end(6, "0").str.head(6).cast(pl.Int64).fill_null(0)
    valid = (hour < 24) & (minute < 60) & (second < 60) & (ahead < 24) & (more < 60)
    offset = (ahead * 60 + more) * ((sign == "-").fill_null(False).cast(pl.Int64) * -2 + 1)
    total = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    instants = _where(valid, total * 1_000_000 + micros) // _PER_MICRO[kind.kind]
    return whole.zip_with(whole.is_not_null(), instants)


def _uuid(texts: pl.Series, kind: FieldType) -> pl.Series:
    lower = texts.str.to_lowercase()
    uuids = _where(lower.str.contains(_UUID), lower)
    if (uuids.str.len_bytes() == 36).all():
        return uuids
    return uuids.str.replace(_UUID_PARTS, "$1-$2-$3-$4-$5")


_READ = cast(
    dict[str, Callable[[pl.Series, FieldType], pl.Series]],
    {
        "string": _string,
        "int": _whole,
        "long": _whole,
        "float": _float,
        "double": _float,
        "boolean": _boolean,
        "bytes": _bytes,
        "decimal": _decimal,
        "date": _date,
        "timestamp-millis": _instant,
        "timestamp-micros": _instant,
        "uuid": _uuid,
    },
)
