"""Damaged schemas of writers: each is read, or refused with a reason; none stops a process."""

import copy
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from errata.processors.envelopes.avro_format import (
    is_control_schema,
    revision_reader,
    tuple_reader,
)
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

FIELDS = {
    name: FieldType.parse(kind)
    for name, kind in {
        "key": "string",
        "at": "timestamp-millis",
        "price": "decimal(9,2)",
        "n": "long?",
    }.items()
}
VARIABLE = "io.debezium.data.VariableScaleDecimal"
AT = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WIDE = {
    "type": "record",
    "name": VARIABLE,
    "connect.name": VARIABLE,
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
ITEMS = {"type": "array", "items": {"type": "map", "values": "Side"}}


def fields(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in types.items()]


TUPLE: dict[str, Any] = {
    "type": "record",
    "name": "T",
    "namespace": "a.b",
    "fields": fields(
        key="string",
        at=AT,
        price=PRICE,
        n=["null", "long"],
        side={"type": "enum", "name": "Side", "symbols": ["buy", "sell"]},
        items=ITEMS,
        four={"type": "fixed", "name": "Four", "size": 4},
        wide=WIDE,
    ),
}
REVISION = {
    "type": "record",
    "name": "Revision",
    "fields": fields(
        op={"type": "enum", "name": "Op", "symbols": ["insert", "delete", "replace"]},
        before=["null", TUPLE],
        after=["null", "a.b.T"],
    ),
}
STRANGE: list[Any] = [None, True, 0, -1, 10**30, 1.5, "", "null", "record", "decimal", "\ud800"]
STRANGE += [[], {}, ["null"], ["null", "string", "long"], [[[["null"]]]], "a.b.T", "Revision"]
STRANGE += [{"type": kind} for kind in (None, [], "record", {"type": "string"})]
STRANGE += [{"type": "record", "name": "Q", "fields": inside} for inside in ([1], True, [{}])]
STRANGE += [{"type": "record", "name": "Q"}, {**WIDE, "fields": [1]}, {**WIDE, "fields": None}]
KEYS = ("type", "name", "fields", "items", "symbols", "size", "precision", "values", "connect.name")


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in inside:
        yield from paths(node[key], (*path, key))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def damaged(rng: Random) -> Any:
    """A schema in which some parts are removed, replaced by strange ones, or put elsewhere."""
    schema = copy.deepcopy(rng.choice([TUPLE, REVISION]))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = list(paths(schema))
        path = rng.choice(places)
        moved = rng.random() < 0.4
        new = copy.deepcopy(at(schema, rng.choice(places)) if moved else rng.choice(STRANGE))
        if not path:
            return new
        parent, chance = at(schema, path[:-1]), rng.random()
        if chance < 0.2:
            del parent[path[-1]]
        elif chance < 0.3 and isinstance(parent, dict):
            parent[rng.choice(KEYS)] = new
        else:
            parent[path[-1]] = new
    return schema


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_schema_is_read_or_refused_and_so_is_each_record_behind_it(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        schema = damaged(rng)
        is_control_schema(schema)
        for reader_of in (
            partial(tuple_reader, fields=FIELDS),
            partial(revision_reader, fields=FIELDS, identity=["key"], ops={"insert": 0}),
        ):
            try:
                reader = reader_of(schema)
            except ErrataError:
                continue
            records = [b"", b"\2a" * 40, rng.randbytes(60)]
            batch = reader(records)
            assert batch.frame.height + len(batch.refused) + batch.passed == len(records)
