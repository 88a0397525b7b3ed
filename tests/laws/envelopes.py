"""Encodes lines in each envelope of a source as JSON records, and decodes such records."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from tests.laws.tape import typed

ENVELOPES = ("native", "debezium", "upsert")
PASSED = "passed over"
"""The oracle's value for a record without a tuple."""

_CODES = {"insert": "c", "replace": "u", "delete": "d"}
_OPS = {code: op for op, code in _CODES.items()}
_JSON = msgspec.json.Encoder(decimal_format="number")
_READ = msgspec.json.Decoder(float_hook=Decimal)


class Record(NamedTuple):
    """A source record."""

    key: bytes | None
    value: bytes | None


def written(content: Any, envelope: str) -> Record:
    """Return the record of a line; a missing or undecodable value stays as it is."""
    if content is None or isinstance(content, bytes):
        return Record(None, content)
    op, before, after = content["op"], content.get("before"), content.get("after")
    if envelope == "native":
        return Record(None, _JSON.encode(content))
    if envelope == "debezium":
        told = {"before": before, "after": after, "op": _CODES[op], "source": {}, "ts_ms": 1}
        return Record(None, _JSON.encode(told))
    key = _JSON.encode({"key": (after or before)["key"]})
    return Record(key, None if op == "delete" else _JSON.encode(after))


def read(record: Record, envelope: str) -> Any:
    """Return a record for the oracle: a line, `PASSED`, or None for an invalid record."""
    if record.value is None and envelope == "debezium":
        return PASSED
    if record.value is None and record.key is not None:
        return {"op": "delete", "before": _READ.decode(record.key)}
    try:
        found = _READ.decode(record.value or b"")
    except msgspec.DecodeError:
        return None
    return _LINES[envelope](found) if isinstance(found, dict) else None


def _native(found: dict[str, Any]) -> Any:
    return found | {side: typed(found[side]) for side in ("before", "after") if found.get(side)}


def _debezium(found: dict[str, Any]) -> Any:
    return _native(found | {"op": _OPS[found["op"]]})


def _upsert(found: dict[str, Any]) -> Any:
    return {"op": "insert", "after": typed(found)}


_LINES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "native": _native,
    "debezium": _debezium,
    "upsert": _upsert,
}
