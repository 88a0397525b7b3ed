"""Literals: what a number, a string or a timestamp in the text stands for."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from processors.expressions import rules
from schemas.fields import MAX_PRECISION, FieldType

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,3})0*)?)?\s*(Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def number(digits: str) -> tuple[int | float, FieldType] | None:
    """Return the value and type of a number as written, a decimal unscaled; None if too large.

    Whole numbers are ``int`` if 32 bits hold them, else ``long``, else decimal; an exponent makes a
    double; a point makes a decimal of just the digits that are there.

    Example:
        >>> value, kind = number("12.50")
        >>> value, str(kind)
        (1250, 'decimal(4,2)')
    """
    if "e" in digits.lower():
        value = float(digits)
        return (value, rules.DOUBLE) if math.isfinite(value) else None
    exact = Decimal(digits)
    sign, figures, exponent = exact.as_tuple()
    unscaled = int("".join(map(str, figures))) * (-1 if sign else 1)
    scale = -int(exponent)
    if scale == 0 and "." not in digits:
        if -(2**31) <= unscaled < 2**31:
            return unscaled, rules.INT
        if -(2**63) <= unscaled < 2**63:
            return unscaled, rules.LONG
    precision = max(len(str(abs(unscaled))), scale)
    if precision > MAX_PRECISION:
        return None
    return unscaled, FieldType("decimal", precision, scale)


def timestamp_ms(text: str) -> int | None:
    """Return the ms since the epoch of ``2026-07-15 09:30:00.250Z``, None if it is no such text.

    Without an offset it is UTC; the time, or its seconds, may be missing.

    Example:
        >>> timestamp_ms("1970-01-01 00:00:01")
        1000
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    *fields, fraction, offset = match.groups()
    zone = UTC
    if offset and offset != "Z":
        hours, minutes = int(offset[:3]), int(offset[0] + offset[4:])
        if abs(hours) > 18 or abs(minutes) > 59:
            return None
        zone = timezone(timedelta(hours=hours, minutes=minutes))
    year, month, day, hour, minute, second = (int(field or 0) for field in fields)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0"))
