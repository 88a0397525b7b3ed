"""Hostile schemas of writers: real ones with one change, as a registry may return them.

A schema is read or refused; nothing else may happen, whatever bytes come with it.
"""

import copy
import random
from collections import Counter
from typing import Any

from errata.processors.envelopes import native
from errata.processors.envelopes.avro_format import AvroFormat
from errata.processors.envelopes.keys import Keys
from errata.schemas.compatible import incompatibilities
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.topics.registry import UnknownSchemaError
from tests.faults.hostile_records import FIELDS, SCHEMAS, Source

PARTS: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    10**30,
    1.5,
    float("nan"),
    "",
    "null",
    "long",
    "T",
    "R",
    "x.y",
    "\0",
    "\ud800",
    "type",
    [],
    {},
    ["null"],
    ["null", "null"],
    [["null"]],
    {"type": "array"},
    {"type": "array", "items": "null"},
    {"type": "map", "values": {"type": "map", "values": "T"}},
    {"type": {"type": "long"}},
    {"type": "fixed", "name": "f", "size": 2**62},
    {"type": "fixed", "name": "f", "size": -1},
    {"type": "fixed", "name": "f", "size": "9"},
    {"type": "enum", "name": "e", "symbols": []},
    {"type": "enum", "name": "e", "symbols": ["a", "a", 5]},
    {"type": "enum", "name": "e", "symbols": ["a"] * 1000},
    {"type": "record", "name": "T", "fields": []},
    {"type": "record", "name": "T", "fields": "x"},
    {"type": "error", "name": "T", "fields": []},
    {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": -5},
    {"type": "bytes", "logicalType": "decimal", "precision": "9", "scale": None},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 30},
    {"type": "bytes", "logicalType": ["decimal"]},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"},
    {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal",
     "connect.parameters": {"scale": "x" * 99}},
    {"type": "long", "connect.name": ["x"]},
]  # fmt: skip


class Mutable:
    """A registry whose schemas are replaced."""

    def __init__(self) -> None:
        self.schemas: dict[int, Any] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        raise AssertionError(subject)

    def schema(self, schema_id: int) -> Any:
        if schema_id not in self.schemas:
            raise UnknownSchemaError(schema_id, registry="the registry")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        return None


def changed(schema: Any, dice: random.Random) -> Any:
    """Return a schema with one change somewhere inside."""
    if dice.random() < 0.15 or not isinstance(schema, (dict, list)) or not schema:
        if dice.random() < 0.1:
            deep: Any = "long"
            for _ in range(dice.choice([15, 17, 500])):
                deep = dice.choice([{"type": "array", "items": deep}, ["null", deep]])
            return deep
        return copy.deepcopy(dice.choice(PARTS))
    if isinstance(schema, list):
        at = dice.randrange(len(schema))
        what = dice.random()
        if what < 0.15:
            return [*schema[:at], *schema[at + 1 :]]
        if what < 0.25:
            return [*schema, schema[at]]
        if what < 0.27:
            return schema * 600
        return [*schema[:at], changed(schema[at], dice), *schema[at + 1 :]]
    name = dice.choice([*schema])
    what = dice.random()
    if what < 0.1:
        return {key: value for key, value in schema.items() if key != name}
    if what < 0.2:
        added = dice.choice(["logicalType", "connect.name", "namespace", "aliases", "default"])
        return {**schema, added: dice.choice(PARTS)}
    return {**schema, name: changed(schema[name], dice)}


def run(seed: int, records: int) -> tuple[Counter[str], list[str]]:
    """Read records by hostile schemas; return counts and faults."""
    dice = random.Random(seed)
    counts, faults, done = Counter[str](), list[str](), 0
    fields = {name: FieldType.parse(kind) for name, kind in FIELDS.items()}
    flat, sided = Source("avro", "upsert", dice), Source("avro", "native", dice)
    while done < records:
        registry = Mutable()
        of_tuples = dice.random() < 0.5
        base = SCHEMAS[dice.choice([1, 2] if of_tuples else [10, 11])]
        for schema_id in range(1, 13):
            registry.schemas[schema_id] = changed(copy.deepcopy(base), dice)
        form = AvroFormat(fields, registry, identity=("key",), ops=native.CODES, connector=True)
        keys = Keys({"key": fields["key"]}, registry)
        source = flat if of_tuples else sided
        values = [sent.value for sent in source.batch(60) if sent.value]
        schema: Any = None
        try:
            for read in (form.tuples, form.revisions, keys.read):
                found = read(values)
                total = found.frame.height + len(found.refused) + found.passed + len(found.absent)
                if total != len(values):
                    faults.append(f"schemas of writers: {total} of {len(values)} accounted for")
                counts["dead letters"] += len(found.refused)
                counts["accepted"] += found.frame.height
            for schema in registry.schemas.values():
                try:
                    list(incompatibilities(schema, base))
                    list(incompatibilities(base, schema))
                except ErrataError:
                    counts["refused to compare"] += 1
        except Exception as error:  # noqa: BLE001 that none escapes is what is tried
            faults.append(
                f"schemas of writers, seed {seed}: {type(error).__name__}: {str(error)[:200]} "
                f"{str(schema)[:300]}"
            )
        done += len(values) * 3
    counts["records"] += done
    return counts, faults
