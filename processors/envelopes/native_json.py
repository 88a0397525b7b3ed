"""The native envelope in JSON: ``{"op": "replace", "before": {...}, "after": {...}}``.

Numbers are read digit by digit, never through a double where a decimal is declared. A decimal may
be a number or a string, a timestamp ms since the epoch or an ISO-8601 string (UTC if it names no
zone).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import polars as pl
from msgspec import UNSET, Meta, UnsetType

from processors.dead_letter import UNDECODABLE
from processors.envelopes.checks import ROW, Decoded, Refusal, check
from schemas import revisions as frames
from schemas.arc import Arc
from schemas.fields import FieldType

LONG = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_KINDS: dict[str, Any] = {
    "string": str,
    "long": LONG,
    "double": float,
    "boolean": bool,
    "decimal": decimal.Decimal,
    "timestamp-millis": LONG | str,
}
_WIDE = decimal.Context(prec=200)


class NativeJson:
    """Decodes native revisions in JSON, one object a record.

    Args:
        arc: The source's arc.
    """

    def __init__(self, arc: Arc) -> None:
        self.arc = arc
        fields = [(n, _KINDS[t.kind] | None | UnsetType, UNSET) for n, t in arc.fields.items()]
        side = msgspec.defstruct("Tuple", fields)
        whole: Any = msgspec.defstruct(
            "Revision",
            [
                ("op", str),
                ("before", side | None | UnsetType, UNSET),
                ("after", side | None | UnsetType, UNSET),
            ],
        )
        self._nothing = side()
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(whole).decode

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return the revisions of a batch, in order, and what can't be taken in."""
        refused: list[Refusal] = []
        try:
            found, rows = list(map(self._decode, values)), list(range(len(values)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found, rows = self._each(values, refused)
        codes = {name: code for code, name in enumerate(frames.OPS)}
        data = {
            ROW: pl.Series(rows, dtype=pl.Int64),
            "op": pl.Series([codes.get(r.op) for r in found], dtype=pl.UInt8),
        }
        wrong: dict[int, str] = {}
        for name in ("before", "after"):
            told = list(map(attrgetter(name), found))
            there = [isinstance(side, msgspec.Struct) for side in told]
            sides = [s if has else self._nothing for s, has in zip(told, there, strict=True)]
            data[f"has_{name}"] = pl.Series(there, dtype=pl.Boolean)
            for field, kind in self.arc.fields.items():
                values_ = list(map(attrgetter(field), sides))
                data[f"{name}.{field}"] = _column(field, values_, kind, wrong)
        refused += [Refusal(rows[i], UNDECODABLE, why) for i, why in wrong.items()]
        frame = pl.DataFrame(data)
        if wrong:
            frame = frame.with_row_index("__i").filter(~pl.col("__i").is_in(list(wrong)))
        judged = check(self.arc, frame)
        return Decoded(judged.frame, refused + judged.refused)

    def _each(self, values: Sequence[bytes], refused: list[Refusal]) -> tuple[list[Any], list[int]]:
        """Decode one by one, to find the bad ones of a batch that has some."""
        found, rows = [], []
        for row, value in enumerate(values):
            try:
                found.append(self._decode(value))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                refused.append(Refusal(row, UNDECODABLE, f"not a native revision: {error}"))
            else:
                rows.append(row)
        return found, rows


def _column(name: str, values: list[Any], kind: FieldType, wrong: dict[int, str]) -> pl.Series:
    """Return values in the field's physical type; faults go to `wrong` by place."""
    values = [None if value is UNSET else value for value in values]
    if kind.kind == "decimal":
        values = [_unscaled(v, name, kind, i, wrong) for i, v in enumerate(values)]
    elif kind.kind == "timestamp-millis" and any(isinstance(v, str) for v in values):
        values = [_moment(v, name, i, wrong) for i, v in enumerate(values)]
    elif kind.kind == "double":
        values = [None if value is None else float(value) for value in values]
    return pl.Series(values, dtype=kind.dtype, strict=True)


def _unscaled(
    value: decimal.Decimal | None, name: str, kind: FieldType, place: int, wrong: dict[int, str]
) -> int | None:
    if value is None:
        return None
    if not value.is_finite() or not -100 < value.adjusted() < 100:
        wrong.setdefault(place, f"{name!r} needs {kind.required}, found {str(value)[:40]}")
        return None
    shifted = _WIDE.scaleb(value, kind.scale)
    whole = int(shifted)
    if shifted != whole or abs(whole) >= 10**kind.precision:
        wrong.setdefault(place, f"{name!r} needs {kind.required}, found {str(value)[:60]}")
        return None
    return whole


def _moment(value: int | str | None, name: str, place: int, wrong: dict[int, str]) -> int | None:
    if not isinstance(value, str):
        return value
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        wrong.setdefault(place, f"{name!r} needs ms or an ISO-8601 time, found {value[:40]!r}")
        return None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
