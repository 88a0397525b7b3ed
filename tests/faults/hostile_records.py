"""Records of users' topics: honest ones, and ones with a single hostile change.

A record is made of *pieces*, the bytes of each field in its format. A hostile record has another
piece somewhere, lacks one, has one twice, stands in a wrong frame, or is damaged as a whole.
"""

import base64
import random
import struct
from dataclasses import dataclass
from typing import Any

from tests.faults.hostile_values import (
    JSON_PIECES,
    LENGTHS,
    NUMBERS,
    TEXTS,
    TIMES_MS,
    VARINTS,
    any_bytes,
    damaged,
    sized,
    some,
    zigzag,
)

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "decimal(9,2)",
    "n": "long?",
    "size": "double?",
    "note": "string?",
    "small": "int?",
    "ok": "boolean?",
    "f": "float?",
    "us": "timestamp-micros?",
    "day": "date?",
    "raw": "bytes?",
    "id": "uuid?",
}
OPTIONAL = [name for name, kind in FIELDS.items() if kind.endswith("?")]
AVRO_TYPES: dict[str, Any] = {
    "key": "string",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "n": "long",
    "size": "double",
    "note": "string",
    "small": "int",
    "ok": "boolean",
    "f": "float",
    "us": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "raw": "bytes",
    "id": {"type": "string", "logicalType": "uuid"},
}
OPS = {
    "native": ("insert", "delete", "replace"),
    "debezium": ("c", "d", "u", "r", "m", "t"),
}


def record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def nullable(name: str) -> Any:
    return ["null", AVRO_TYPES[name]] if name in OPTIONAL else AVRO_TYPES[name]


TUPLE = record("T", [{"name": name, "type": nullable(name)} for name in FIELDS])
EXTRA: list[dict[str, Any]] = [
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "attributes", "type": {"type": "map", "values": "long"}},
    {"name": "deep", "type": {"type": "array", "items": {"type": "array", "items": "null"}}},
    {"name": "choice", "type": ["null", "long", "string", {"type": "array", "items": "int"}]},
]
WIDER = record(
    "T", [*EXTRA, *({"name": name, "type": nullable(name)} for name in reversed(FIELDS))]
)
"""A writer with more fields, in another order."""
NARROW = record("T", [{"name": name, "type": nullable(name)} for name in ("price", "key", "at")])
RECURSIVE = record("T", [*TUPLE["fields"], {"name": "next", "type": ["null", "T"]}])
FOREIGN = record("Other", [{"name": "x", "type": "string"}])
WRONG = record("T", [{"name": name, "type": "string"} for name in FIELDS])


def revision(op: Any) -> dict[str, Any]:
    return record(
        "R",
        [
            {"name": "before", "type": ["null", TUPLE]},
            {"name": "after", "type": ["null", "T"]},
            {"name": "op", "type": op},
        ],
    )


SCHEMAS: dict[int, Any] = {
    1: TUPLE,
    2: WIDER,
    3: NARROW,
    4: RECURSIVE,
    5: FOREIGN,
    6: WRONG,
    7: "string",
    8: {"type": "record"},
    9: {"type": "array", "items": "long"},
    10: revision({"type": "enum", "name": "Op", "symbols": list(OPS["native"])}),
    11: revision("string"),
    12: record("Key", [{"name": "key", "type": "string"}]),
    13: record("Heartbeat", [{"name": "ts_ms", "type": "long"}]),
    14: {"type": "enum", "name": "E", "symbols": ["a"]},
    15: {"type": "fixed", "name": "F", "size": 2**31},
}
"""Schemas by id, as a registry has them: fit and unfit."""

Tuple = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A record of a source; an honest one is of a plain writer."""

    key: bytes | None
    value: bytes | None
    is_honest: bool


class Source:
    """Writes records of one format in one envelope.

    Args:
        format: ``avro``, ``json`` or ``csv``.
        envelope: ``append``, ``upsert``, ``debezium`` or ``native``.
        dice: The random generator.
    """

    def __init__(self, format: str, envelope: str, dice: random.Random) -> None:
        self.format, self.envelope, self.dice = format, envelope, dice
        self.count, self.live = 0, dict[str, Tuple]()
        self.is_sided = envelope in OPS

    def batch(self, size: int) -> list[Sent]:
        """Return records in random order, about a third of them honest."""
        return [self.honest() if self.dice.random() < 0.35 else self.hostile() for _ in range(size)]

    # ---------------------------------------------------------------- honest records

    def tuple(self, key: str | None = None) -> Tuple:
        dice = self.dice
        self.count += 1
        row: Tuple = {
            "key": f"k{self.count}" if key is None else key,
            "at": dice.randrange(3_600_000),
            "price": dice.randrange(-(10**6), 10**6),
        }
        row["n"] = dice.randrange(-1000, 1000)
        row["size"] = dice.choice([0.5, -0.0, 1e300, 3.25])
        row["note"] = dice.choice(
            ["", "a", 'quo"te', "comma, line\nbreak", "\u00e9\U0001f600", "{[}"]
        )
        row["small"], row["ok"] = dice.randrange(-(2**31), 2**31), dice.random() < 0.5
        row["f"], row["us"] = dice.choice([0.5, 1.25, -2.0]), dice.randrange(10**15)
        row["day"] = dice.randrange(-10_000, 20_000)
        row["raw"] = dice.randbytes(dice.randrange(5))
        row["id"] = f"{dice.getrandbits(128):032x}"
        row["id"] = "-".join(
            row["id"][a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
        )
        for name in OPTIONAL:
            if dice.random() < 0.2:
                row[name] = None
        return row

    def honest(self) -> Sent:
        """Return an honest record: an insert, or a revision of a tuple that was sent before."""
        dice = self.dice
        old = dice.choice(list(self.live)) if self.live and dice.random() < 0.4 else None
        if self.envelope == "append" or old is None:
            row = self.tuple()
            if self.envelope != "append":
                self.live[row["key"]] = row
            insert = {"native": "insert", "debezium": "c"}.get(self.envelope, "")
            return Sent(row["key"].encode(), self.assembled(insert, None, self.pieces(row)), True)
        before, key = self.live.pop(old), old.encode()
        if dice.random() < 0.4:
            if not self.is_sided:
                return Sent(key, None, True)
            op = {"native": "delete", "debezium": "d"}[self.envelope]
            return Sent(key, self.assembled(op, self.pieces(before), None), True)
        row = self.live[old] = self.tuple(old)
        op = {"native": "replace", "debezium": "u"}.get(self.envelope, "")
        return Sent(key, self.assembled(op, self.pieces(before), self.pieces(row)), True)

    def pieces(self, row: Tuple) -> dict[str, bytes]:
        """Return each field of a tuple in the format."""
        return {name: PIECE[self.format](name, row.get(name)) for name in FIELDS}

    # ---------------------------------------------------------------- assembling

    def assembled(
        self,
        op: str,
        before: dict[str, bytes] | None,
        after: dict[str, bytes] | None,
    ) -> bytes:
        """Return the value of a record."""
        if self.format == "csv":
            return b",".join((after or {}).values())
        if self.format == "json":
            if not self.is_sided:
                return self._object(after or {})
            sides = {"before": before, "after": after}
            told = [b'"op": "%s"' % op.encode()]
            for name, side in sides.items():
                if side is not None or self.dice.random() < 0.5:
                    content = b"null" if side is None else self._object(side)
                    told.append(b'"%s": %s' % (name.encode(), content))
            self.dice.shuffle(told)
            return b"{" + b", ".join(told) + b"}"
        if not self.is_sided:
            return self._framed(1, b"".join((after or {}).values()))
        sides_bytes = b"".join(
            b"\0" if side is None else b"\2" + b"".join(side.values()) for side in (before, after)
        )
        if self.envelope == "native" and self.dice.random() < 0.5:
            symbols = OPS["native"]
            return self._framed(10, sides_bytes + zigzag(symbols.index(op) if op in symbols else 0))
        return self._framed(11, sides_bytes + sized(op.encode()))

    def _object(self, pieces: dict[str, bytes]) -> bytes:
        space = b" " if self.dice.random() < 0.5 else b""
        told = [b'"%s":%s%s' % (n.encode(), space, piece) for n, piece in pieces.items()]
        if self.dice.random() < 0.3:
            self.dice.shuffle(told)
        return b"{" + (b"," + space).join(told) + b"}"

    def _framed(self, schema_id: int, body: bytes) -> bytes:
        return b"\0" + schema_id.to_bytes(4, "big") + body

    # ---------------------------------------------------------------- hostile records

    def hostile(self) -> Sent:
        """Return a record with one hostile change."""
        dice = self.dice
        key: bytes | None = dice.choice(
            [None, b"k1", f"k{dice.randrange(self.count + 1)}".encode()]
        )
        what = dice.random()
        if what < 0.05:
            return Sent(self._hostile_key(), dice.choice([None, self._value()]), False)
        if what < 0.07:
            return Sent(key, None, False)
        if what < 0.10:
            return Sent(key, any_bytes(dice), False)
        if what < 0.11:
            return Sent(key, self._large(), False)
        if what < 0.30:
            return Sent(key, damaged(self._value(), dice), False)
        if what < 0.40:
            return Sent(key, self._foreign_form(), False)
        return Sent(key, self._value(hostile=True), False)

    def _value(self, *, hostile: bool = False) -> bytes:
        """Return a value; a hostile one has another piece in one place."""
        dice = self.dice
        after, before, op = self.pieces(self.tuple()), None, ""
        if self.is_sided:
            op = dice.choice(OPS[self.envelope])
            before = self.pieces(self.tuple(f"k{dice.randrange(self.count)}"))
            if dice.random() < 0.3:
                before = None
        if hostile:
            changed = before if before is not None and dice.random() < 0.3 else after
            name = dice.choice(list(FIELDS))
            changed[name] = HOSTILE[self.format](name, dice)
            if dice.random() < 0.05:
                op = dice.choice(["", "x", "INSERT", "insert ", "\0", "c" * 1000])
        return self.assembled(op, before, after)

    def _hostile_key(self) -> bytes:
        dice = self.dice
        return dice.choice(
            [
                b"",
                any_bytes(dice),
                some(dice, TEXTS),
                some(dice, JSON_PIECES),
                b'{"key": ' + some(dice, JSON_PIECES) + b"}",
                b'{"key": "k1", "key": "k2"}',
                b'{"schema": {}, "payload": {"key": "k1"}}',
                b'{"schema": {}, "payload": null}',
                self._framed(12, some(dice, [sized(b"k1"), *map(zigzag, LENGTHS)])),
                self._framed(7, sized(b"k2")),
                self._framed(dice.randrange(16), dice.randbytes(5)),
                b"k" * dice.choice([500, 501, 200_001]),
            ]
        )

    def _large(self) -> bytes:
        """Return a value about as large as is allowed, or larger, in a field that is text."""
        after = self.pieces(self.tuple())
        size = self.dice.choice([199_000, 200_001, 400_000])
        after["note"] = PIECE[self.format]("note", "y" * size)
        return self.assembled("insert" if self.envelope == "native" else "c", None, after)

    def _foreign_form(self) -> bytes:
        """Return a value whose form is another one than the source's."""
        return FORM[self.format](self)


# -------------------------------------------------------------------- the formats


def _json_piece(name: str, value: Any) -> bytes:
    if value is None:
        return b"null"
    if name in ("key", "note"):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return b'"' + text.encode() + b'"'
    if name == "price":
        sign, whole = "-" if value < 0 else "", abs(value)
        return f"{sign}{whole // 100}.{whole % 100:02}".encode()
    if name == "ok":
        return b"true" if value else b"false"
    if name == "raw":
        return b'"' + base64.b64encode(value) + b'"'
    if name == "id":
        return b'"' + value.encode() + b'"'
    return repr(value).encode()


def _csv_piece(name: str, value: Any) -> bytes:
    if value is None:
        return b""
    if name in ("key", "note"):
        return b'"' + value.replace('"', '""').encode() + b'"'
    piece = _json_piece(name, value)
    return b'"' + piece[1:-1] + b'"' if name == "raw" else piece.strip(b'"')


def _avro_piece(name: str, value: Any) -> bytes:
    if name in OPTIONAL:
        return b"\0" if value is None else b"\2" + _avro_value(name, value)
    return _avro_value(name, value)


def _avro_value(name: str, value: Any) -> bytes:
    if name in ("key", "note", "id"):
        return sized(value.encode())
    if name == "raw":
        return sized(value)
    if name == "price":
        return sized(
            value.to_bytes(8, "big", signed=True).lstrip(b"\0")[:8]
            if 0 < value < 128
            else value.to_bytes(8, "big", signed=True)
        )
    if name == "ok":
        return b"\1" if value else b"\0"
    if name == "size":
        return struct.pack("<d", value)
    if name == "f":
        return struct.pack("<f", value)
    return zigzag(value)


def _hostile_json(name: str, dice: random.Random) -> bytes:
    what = dice.random()
    if what < 0.45:
        return some(dice, JSON_PIECES)
    if what < 0.6:
        return some(dice, [*NUMBERS, *(str(t).encode() for t in TIMES_MS)])
    if what < 0.7:
        return b'"' + some(dice, NUMBERS) + b'"'
    if what < 0.75:  # the field twice, or another one
        again = dice.choice([name, "key", "at", "op", "\\u006bey", "more"])
        return b'null, "%s": null' % again.encode()
    return b'"' + some(dice, TEXTS) + b'"'


def _hostile_csv(name: str, dice: random.Random) -> bytes:
    piece = some(dice, [*TEXTS, *NUMBERS, *(str(t).encode() for t in TIMES_MS)])
    return dice.choice(
        [
            piece,
            piece,
            b'"' + piece + b'"',
            b'"' + piece,
            piece + b'"',
            b'""' + piece,
            b'"a""b"',
            b'"""',
            b'" "',
            b" " + piece,
            piece + b",",
            b'"a\r\nb"',
            b'"a\rb"',
            b'"a\nb"',
            b"a\rb",
            b"a\nb",
            b'"a,b"',
            b"#" + piece,
            b"'a,b'",
            b'\\"',
        ]
    )


def _hostile_avro(name: str, dice: random.Random) -> bytes:
    head = b"\2" if name in OPTIONAL else b""
    what = dice.random()
    if what < 0.15 and head:  # the branch of the union
        return dice.choice([*VARINTS, *map(zigzag, [-1, 2, 3, 2**31, -(2**63)])]) + b"\2"
    if what < 0.35:
        return head + dice.choice(VARINTS)
    if what < 0.55:
        return head + zigzag(dice.choice(LENGTHS)) + dice.randbytes(dice.randrange(5))
    if what < 0.7:
        return head + zigzag(dice.choice(TIMES_MS))
    if what < 0.8:
        return head + sized(dice.randbytes(dice.choice([0, 1, 4, 8, 9, 15, 16, 17, 32])))
    if what < 0.9:
        return head + sized(some(dice, TEXTS))
    numbers = [float("nan"), float("inf"), float("-inf"), -0.0, 1e308, 5e-324]
    number = dice.choice(numbers)
    if name == "f":
        return head + struct.pack("<f", number if abs(number) < 3e38 or number != number else 3e38)
    return head + (b"\2" if name == "ok" else struct.pack("<d", number))


def _json_form(source: Source) -> bytes:
    dice, value = source.dice, source._value()
    schema = dice.choice(
        [
            b"{}",
            b"null",
            b"[]",
            b"5",
            b'{"fields": 5}',
            b'{"fields": [5, null, {"field": 5}, {"field": "at", "name": []}]}',
            b'{"fields": [{"field": "at", "name": "io.debezium.time.MicroTimestamp"}]}',
            b'{"fields": [{"field": "at", "name": "io.debezium.time.NanoTimestamp"}]}',
            b'{"fields": [{"field": "price", "name": "org.apache.kafka.connect.data.Decimal",'
            b' "parameters": {"scale": "%s"}}]}'
            % dice.choice([b"2", b"-5", b"99", b"x", b"9" * 40]),
            b'{"fields": [{"field": "price", "name": "io.debezium.data.VariableScaleDecimal"}]}',
            b'{"fields":[' * 90 + b"]}" * 90,
            b'{"fields": [{"field": "after", "type": "struct", "fields": [{"field": "at",'
            b' "name": "io.debezium.time.MicroTimestamp"}]}]}',
        ]
    )
    return dice.choice(
        [
            b'{"schema":' + schema + b',"payload":' + value + b"}",
            b'{"schema":' + schema + b', "payload": null}',
            b'{"schema":' + schema + b"}",
            b'{"schema":' + schema + b',"payload":' + value + b',"more":1}',
            b'{"schema": ' + schema + b',"payload":' + value + b"}",
            b"[" + value + b"]",
            value + value,
            b"\xef\xbb\xbf" + value,
            b" \t\r\n" + value + b" \n",
            value[:-1] + b",}",
            value[:-1] + b', "more": ' + dice.choice(JSON_PIECES) + b"}",
            value[:-1] + b', "key": "again"}',
            value[:-1] + b', "ke\\u0079": "again"}',
            b'{"ts_ms": 5}',
            b'{"status": "BEGIN", "id": "1"}',
            value.decode("utf-8", "replace").encode("utf-16"),
            value.replace(b'"key"', b'"KEY"'),
            value.replace(b'"at"', b'"a\\u0074"'),
            b"{}",
            b"null",
            b'"' + value.replace(b'"', b'\\"') + b'"',
        ]
    )


def _csv_form(source: Source) -> bytes:
    dice, value = source.dice, source._value()
    return dice.choice(
        [
            value + b"\n",
            value + b"\r\n",
            value + b"\r",
            value + b"\n\n",
            b"\n" + value,
            b"\xef\xbb\xbf" + value,
            value + b",",
            b"," + value,
            value + b"\n" + value,
            value.replace(b",", b";"),
            value.replace(b",", b"\t"),
            b"," * (len(FIELDS) - 1),
            b'"' + value + b'"',
            value.replace(b'"', b"'"),
            b"key,at,price,n,size,note,small,ok,f,us,day,raw,id",
            b"#" + value,
            value + b"\0",
            b'"' * 13,
            b'"a' * 200_00,
        ]
    )


def _avro_form(source: Source) -> bytes:
    dice = source.dice
    value = source._value()
    body = value[5:]
    wider = b"".join(reversed(list(source.pieces(source.tuple()).values())))
    counts = zigzag(dice.choice([*LENGTHS, 10_001, 2**40]))
    extra = dice.choice(
        [
            b"\0\0\0\0",
            b"\2\2a\0" + b"\2\2b\2\0" + b"\0\0",  # one item each
            b"\1\4\2a\0" + b"\0\0\0",  # a block with its size
            counts + b"\2a\0" + b"\0\0\0",
            b"\0" + counts + b"\2a\2\0" + b"\0\0",
            b"\0\0" + counts + b"\0\0",
            b"\0\0\2" + counts + b"\0\0\0",  # nulls take no bytes
            b"\0\0" + (b"\2" + zigzag(9_999) + b"\0") * 1 + b"\0\0",
            b"\0\0\0" + b"\6" + counts + b"\2\0",
            b"\1" + zigzag(dice.choice(LENGTHS)) + b"\2a\0\0\0\0",
            b"\0\0\0" + dice.choice(VARINTS),
        ]
    )
    return dice.choice(
        [
            source._framed(dice.randrange(0, 18), body),
            source._framed(2**31, body),
            source._framed(2**32 - 1, body),
            source._framed(2, extra + wider),
            source._framed(2, extra + wider),
            source._framed(2, extra + wider),
            source._framed(3, b"".join(source.pieces(source.tuple())[n] for n in NARROW_NAMES)),
            source._framed(4, b"\2\2" * 5000),
            source._framed(13, zigzag(5)),
            b"\1" + value[1:],
            body,
            b"\0" + value,
            value + b"\0",
        ]
    )


NARROW_NAMES = ("price", "key", "at")
PIECE = {"json": _json_piece, "csv": _csv_piece, "avro": _avro_piece}
HOSTILE = {"json": _hostile_json, "csv": _hostile_csv, "avro": _hostile_avro}
FORM = {"json": _json_form, "csv": _csv_form, "avro": _avro_form}
