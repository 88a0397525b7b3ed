"""Says what a record of a user's topic means, with other parsers than the product's.

A judge returns the meaning of a record that a strict reader would accept. It raises
`BadRecordError` for one that no reader may accept. Values are in the physical types of the fields.
"""

import base64
import binascii
import io
import json
import re
import struct
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import fastavro

from tests.faults.hostile_records import FIELDS, OPTIONAL, SCHEMAS

KINDS = {name: kind.rstrip("?") for name, kind in FIELDS.items()}
INSERT, DELETE, REPLACE, PASSED = "insert", "delete", "replace", "passed"
Tuple = dict[str, Any]


class BadRecordError(Exception):
    """No reader may accept the record."""


@dataclass(frozen=True)
class Meaning:
    """What a record does: the op, and the two sides as far as they are stated."""

    op: str
    before: Tuple | None = None
    after: Tuple | None = None


def require(holds: bool, what: str) -> None:
    if not holds:
        raise BadRecordError(what)


# -------------------------------------------------------------------- texts


class Number(str):
    """The digits of a number in JSON."""


_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,9})?", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:([Zz])|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
_UUID = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})")
_BOUNDS = {"int": 2**31, "long": 2**63}
_DAY = date(1970, 1, 1).toordinal()


def of_text(name: str, text: str) -> Any:
    """Return the value of a field from its text."""
    kind = KINDS[name]
    if kind == "string":
        return text
    if kind in _BOUNDS:
        return whole(text, _BOUNDS[kind])
    if kind in ("double", "float"):
        return of_number(kind, text)
    if kind == "boolean":
        require(text.lower() in ("true", "false", "1", "0"), "no boolean")
        return text.lower() in ("true", "1")
    if kind == "bytes":
        try:
            return base64.b64decode(text.encode(), validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRecordError("no base64") from error
    if kind.startswith("decimal"):
        require(_NUMBER.fullmatch(text) is not None, "no decimal")
        return unscaled(Decimal(text))
    if kind == "uuid":
        match = _UUID.fullmatch(text.lower())
        require(match is not None, "no uuid")
        assert match is not None
        return "-".join(match.groups())
    if kind == "date":
        match = re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII)
        return day(text) if match else whole(text, 2**31)
    return instant(kind, text)


def whole(text: str, bound: int) -> int:
    require(_WHOLE.fullmatch(text) is not None and len(text) < 30, "no whole number")
    require(-bound <= int(text) < bound, "out of range")
    return int(text)


def of_number(kind: str, text: str) -> float:
    require(_NUMBER.fullmatch(text) is not None, "no number")
    number = float(text)
    require(abs(number) != float("inf"), "beyond a double")
    return single(number) if kind == "float" else number


def single(number: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError as error:
        raise BadRecordError("beyond a float") from error
    return rounded


def unscaled(number: Decimal) -> int:
    try:
        sign, digits, exponent = number.as_tuple()
    except InvalidOperation as error:
        raise BadRecordError("no decimal") from error
    require(isinstance(exponent, int), "no decimal")
    require(len(digits) < 4_000, "beyond the precision")
    value, shift = int("".join(map(str, digits))), int(exponent) + 2
    if value:
        require(-5_000 < shift < 20, "beyond the precision")
        require(shift >= 0 or value % 10**-shift == 0, "beyond the scale")
        value = value * 10**shift if shift >= 0 else value // 10**-shift
    require(value < 10**9, "beyond the precision")
    return -value if sign else value


YEAR_0 = -(2**40)
"""A time before the year 1, in any unit: it can be read, but no arc holds it."""


def day(text: str) -> int:
    if text.startswith("0000"):
        return YEAR_0
    try:
        return date.fromisoformat(text).toordinal() - _DAY
    except ValueError as error:
        raise BadRecordError("no date") from error


def instant(kind: str, text: str) -> int:
    per_second = 1_000 if kind == "timestamp-millis" else 1_000_000
    if _WHOLE.fullmatch(text):
        return whole(text, 2**63)
    match = _TIME.fullmatch(text)
    require(match is not None, "no time")
    assert match is not None
    year, month, number, hour, minute, second, fraction, _, sign, ahead, more = match.groups()
    if year == "0000":
        return YEAR_0 * 10**8
    try:
        at = datetime(
            int(year), int(month), int(number), int(hour or 0), int(minute or 0), int(second or 0)
        )
        offset = timedelta(hours=int(ahead or 0), minutes=int(more or 0))
        timezone(offset)
    except ValueError as error:
        raise BadRecordError("no time") from error
    require(int(more or 0) < 60, "no offset")
    seconds = (at - datetime(1970, 1, 1)) // timedelta(seconds=1)
    seconds -= int(offset.total_seconds()) * (-1 if sign == "-" else 1)
    micros = int(((fraction or "") + "000000")[:6])
    return (seconds * 1_000_000 + micros) * per_second // 1_000_000


# -------------------------------------------------------------------- JSON


def _pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in members]
    known = {*FIELDS, "op", "before", "after"}
    for name in known.intersection(names):
        require(names.count(name) == 1, "a field twice")
    return dict(members)


def _constant(text: str) -> Any:
    raise BadRecordError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=Number, parse_int=Number, parse_constant=_constant
)


def json_of(value: bytes) -> Any:
    """Return parsed JSON, numbers as `Number`."""
    try:
        text = value.decode()
        parsed = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(str(error)) from error
    return parsed


def json_tuple(parsed: Any) -> Tuple:
    require(isinstance(parsed, dict), "no object")
    row: Tuple = {}
    for name in FIELDS:
        value = parsed.get(name)
        row[name] = None if value is None else json_value(name, value)
    return row


def json_value(name: str, value: Any) -> Any:
    kind = KINDS[name]
    if isinstance(value, Number):
        require(kind not in ("string", "boolean", "bytes", "uuid"), "a number")
        # JSON's whole zero has no sign.
        return of_text(name, "0" if value == "-0" else value)
    if isinstance(value, bool):
        require(kind == "boolean", "a boolean")
        return value
    require(isinstance(value, str), "no scalar")
    require(kind not in ("int", "long", "double", "float", "boolean"), "a text")
    require(not any(0xD800 <= ord(c) < 0xE000 for c in value), "half a surrogate")
    return of_text(name, value)


_OPS = {
    "native": {"insert": INSERT, "delete": DELETE, "replace": REPLACE},
    "debezium": {"c": INSERT, "r": INSERT, "u": REPLACE, "d": DELETE, "m": PASSED},
}


class JsonJudge:
    def __init__(self, envelope: str) -> None:
        self.envelope = envelope

    def meaning(self, value: bytes) -> Meaning:
        parsed = json_of(value)
        block: Any = None
        if value.startswith(b'{"schema":') and isinstance(parsed, dict):
            require(set(parsed) == {"schema", "payload"}, "no schema block")
            block, parsed = parsed["schema"], parsed["payload"]
            if parsed is None:
                return Meaning(DELETE if self.envelope == "upsert" else PASSED)
        if self.envelope in ("append", "upsert"):
            return Meaning(INSERT, after=self._tuple(parsed, block))
        require(isinstance(parsed, dict), "no object")
        op = _OPS[self.envelope].get(parsed.get("op"), "?") if is_text(parsed.get("op")) else "?"
        inner = block_of(block, "after") or block_of(block, "before")
        before, after = (
            None if parsed.get(side) is None else self._tuple(parsed[side], inner)
            for side in ("before", "after")
        )
        if op == "?" and before is None and after is None and self.envelope == "debezium":
            is_boundary = "id" in parsed and parsed.get("status") in ("BEGIN", "END")
            op = PASSED if set(parsed) == {"ts_ms"} or is_boundary else op
        require(op != "?", "no op")
        return Meaning(op, before, after)

    def _tuple(self, parsed: Any, block: Any) -> Tuple:
        """Return a tuple; one with times or decimals of another meaning is taken as it is said."""
        require(isinstance(parsed, dict), "no object")
        meanings = (
            {
                part.get("field"): part
                for part in (block.get("fields") if isinstance(block, dict) else None) or ()
                if isinstance(part, dict) and isinstance(part.get("field"), str)
            }
            if isinstance(block, dict) and isinstance(block.get("fields"), list)
            else {}
        )
        plain = {name: value for name, value in parsed.items()}
        at, part = plain.get("at"), meanings.get("at", {})
        per_ms = {
            "io.debezium.time.MicroTimestamp": 1_000,
            "io.debezium.time.NanoTimestamp": 1_000_000,
        }.get(str(part.get("name")))
        if per_ms and at is not None:
            require(isinstance(at, str) and _WHOLE.fullmatch(at) is not None, "no instant")
            plain["at"] = Number(whole(at, 2**63) // per_ms)
        row = json_tuple({**plain, "price": None})
        price, part = plain.get("price"), meanings.get("price", {})
        if price is None:
            return row
        if part.get("name") == "org.apache.kafka.connect.data.Decimal" and not isinstance(
            price, Number
        ):
            require(isinstance(price, str), "no scalar")
            try:
                number = int.from_bytes(base64.b64decode(price, validate=True), signed=True)
                scale = int(str((part.get("parameters") or {}).get("scale"))[:9])
            except ValueError as error:
                if _NUMBER.fullmatch(price):
                    return {**row, "price": of_text("price", price)}
                raise BadRecordError("no scaled number") from error
            return {**row, "price": unscaled(Decimal(number).scaleb(-scale))}
        if part.get("name") == "io.debezium.data.VariableScaleDecimal":
            require(isinstance(price, dict), "no decimal of its own scale")
            number = int.from_bytes(base64.b64decode(price["value"]), signed=True)
            return {**row, "price": unscaled(Decimal(number).scaleb(-int(price["scale"])))}
        return {**row, "price": json_value("price", price)}


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def block_of(block: Any, side: str) -> Any:
    if not isinstance(block, dict) or not isinstance(block.get("fields"), list):
        return None
    parts = [part for part in block["fields"] if isinstance(part, dict)]
    return next((p for p in parts if p.get("field") == side and p.get("type") == "struct"), None)


# -------------------------------------------------------------------- CSV


class CsvJudge:
    def meaning(self, value: bytes) -> Meaning:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise BadRecordError("not UTF-8") from error
        text = text.removesuffix("\n").removesuffix("\r")
        cells = list(self._cells(text))
        require(len(cells) == len(FIELDS), "another number of cells")
        row: Tuple = {}
        for (name, kind), (cell, is_quoted) in zip(KINDS.items(), cells, strict=True):
            is_null = cell == "" and not (is_quoted and kind in ("string", "bytes"))
            row[name] = None if is_null else of_text(name, cell)
        return Meaning(INSERT, after=row)

    def _cells(self, text: str) -> Any:
        at = 0
        while True:
            if text[at : at + 1] == '"':
                content, at = "", at + 1
                while True:
                    end = text.find('"', at)
                    require(end >= 0, "an open quote")
                    content += text[at:end]
                    at = end + 1
                    if text[at : at + 1] != '"':
                        break
                    content, at = content + '"', at + 1
                yield content, True
            else:
                end = at
                while end < len(text) and text[end] != ",":
                    require(text[end] not in '"\r\n', "a quote or a line's end inside")
                    end += 1
                yield text[at:end], False
                at = end
            if at == len(text):
                return
            require(text[at] == ",", "text behind a quote")
            at += 1


# -------------------------------------------------------------------- Avro


@cache
def parsed_schema(schema_id: int) -> Any:
    try:
        return fastavro.parse_schema(SCHEMAS[schema_id])
    except Exception:  # noqa: BLE001 one that is no schema
        return None


def plain_schema(schema: Any) -> Any:
    """Return a schema without logical types: values are compared as they are written."""
    if isinstance(schema, dict):
        return {k: plain_schema(v) for k, v in schema.items() if k != "logicalType"}
    return [plain_schema(part) for part in schema] if isinstance(schema, list) else schema


@cache
def reader_schema(schema_id: int) -> Any:
    try:
        return fastavro.parse_schema(plain_schema(SCHEMAS[schema_id]))
    except Exception:  # noqa: BLE001 one that is no schema
        return None


def avro_of(value: bytes) -> tuple[int, Any]:
    require(len(value) >= 5 and value[0] == 0, "no frame")
    schema_id = int.from_bytes(value[1:5], "big")
    require(schema_id in SCHEMAS, "an unknown schema")
    schema, stream = reader_schema(schema_id), io.BytesIO(value[5:])
    require(schema is not None, "no schema")
    try:
        parsed = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:
        raise BadRecordError(str(error)) from error
    require(not stream.read(1), "bytes are left over")
    return schema_id, parsed


def avro_tuple(parsed: Any) -> Tuple:
    require(isinstance(parsed, dict), "no record")
    row: Tuple = {}
    for name, kind in KINDS.items():
        value = parsed.get(name)
        if value is not None and kind.startswith("decimal"):
            require(isinstance(value, bytes), "no bytes")
            value = int.from_bytes(value, "big", signed=True)
            require(abs(value) < 10**9, "beyond the precision")
        if value is not None and kind == "uuid":
            require(isinstance(value, str), "no text")
            value = of_text("id", value)
        if value is not None and kind == "float":
            value = single(value) if abs(value) < float("inf") else value
        row[name] = value
    return row


class AvroJudge:
    def __init__(self, envelope: str) -> None:
        self.envelope = envelope

    def meaning(self, value: bytes) -> Meaning:
        schema_id, parsed = avro_of(value)
        if self.envelope in ("append", "upsert"):
            require(schema_id in (1, 2, 3), "another schema")
            return Meaning(INSERT, after=avro_tuple(parsed))
        if schema_id == 13 and self.envelope == "debezium":
            return Meaning(PASSED)
        require(schema_id in (10, 11), "another schema")
        op = _OPS[self.envelope].get(parsed["op"])
        require(op is not None, "no op")
        assert op is not None
        before, after = (
            None if parsed[side] is None else avro_tuple(parsed[side])
            for side in ("before", "after")
        )
        return Meaning(op, before, after)


def judge_of(format: str, envelope: str) -> JsonJudge | AvroJudge | CsvJudge:
    if format == "csv":
        return CsvJudge()
    return JsonJudge(envelope) if format == "json" else AvroJudge(envelope)


def key_of(key: bytes | None) -> str:
    """Return the identity in a record's key, in any of the forms."""
    require(key is not None, "no key")
    assert key is not None
    if key[:1] == b"\0" and len(key) >= 5:
        _, parsed = avro_of(key)
        named = parsed.get("key") if isinstance(parsed, dict) else parsed
        require(isinstance(named, str), "no identity")
        assert isinstance(named, str)
        return named
    if key[:1] in (b"{", b'"'):
        parsed = json_of(key)
        if key.startswith(b'{"schema":'):
            require(isinstance(parsed, dict) and set(parsed) == {"schema", "payload"}, "no block")
            parsed = parsed["payload"]
        named = parsed.get("key") if isinstance(parsed, dict) else parsed
        require(is_text(named), "no identity")
        return str(json_value("key", named))
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError("not UTF-8") from error


def is_whole(row: Tuple) -> bool:
    """Whether a tuple has all that is never null, and times that an arc holds."""
    years = (-62_135_596_800_000, 253_402_300_799_999)
    times = [(row["us"], 1_000), (row["day"], 1 / 86_400_000)]
    inside = all(
        value is None or years[0] * per <= value <= years[1] * per + max(per - 1, 0)
        for value, per in times
    )
    at = row["at"]
    return (
        inside
        and all(row[name] is not None for name in FIELDS if name not in OPTIONAL)
        and -30_610_224_000_000 <= at <= 221_845_392_000_000
    )
