"""Whether data written with one Avro schema can be read with another: Avro's schema resolution.

Decided from the schemas alone, as a registry does before it accepts a new version of a subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fastavro.schema import SchemaParseException, parse_schema

_PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""By the writer's type: the other types that a reader may use."""
_NAMED = ("record", "enum", "fixed")
_NOT_AVRO = SchemaParseException, ValueError, KeyError, TypeError, AttributeError, RecursionError


def incompatibilities(reader: Any, writer: Any) -> list[str]:
    """Return why data of a writer's schema can't be read with a reader's; [] if it can.

    Two decimals must have the same precision and scale, and two logical types must be the same.

    Args:
        reader: The reader's schema, as parsed JSON.
        writer: The writer's.

    Example:
        >>> def record(*fields):
        ...     return {"type": "record", "name": "R", "fields": list(fields)}
        >>> x, y = {"name": "x", "type": "long"}, {"name": "y", "type": ["null", "long"]}
        >>> incompatibilities(record(x, y | {"default": None}), record(x))
        []
        >>> incompatibilities(record(x, y), record(x))
        ["field 'y' is new and has no default"]
    """
    pair = _Pair()
    try:
        read = parse_schema(reader, named_schemas=pair.readers, _write_hint=False)
        written = parse_schema(writer, named_schemas=pair.writers, _write_hint=False)
        return list(dict.fromkeys(pair.faults(read, written, "")))
    except _NOT_AVRO as error:
        return [f"one of the schemas is not Avro: {error}"]


@dataclass
class _Pair:
    """Two schemas, with the named types of each."""

    readers: dict[str, Any] = field(default_factory=dict)
    writers: dict[str, Any] = field(default_factory=dict)
    _visited: set[tuple[str, str]] = field(default_factory=set)

    def faults(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        """Yield the reasons why a type can't be read as another."""
        reader, writer = _resolved(reader, self.readers), _resolved(writer, self.writers)
        if isinstance(writer, list):
            for branch in writer:
                faults = list(self.faults(reader, branch, place))
                null_was_dropped = branch == "null" and faults
                yield from (
                    [f"{_described(place)} was nullable, is not"] if null_was_dropped else faults
                )
        elif isinstance(reader, list):
            yield from self._one_of(reader, writer, place)
        elif reader["type"] != writer["type"]:
            if reader["type"] not in _PROMOTED.get(writer["type"], ()):
                yield f"{_described(place)} was {_shown(writer)}, is {_shown(reader)}"
        elif _differ(_logical_type(reader), _logical_type(writer)):
            yield f"{_described(place)} was {_shown(writer)}, is {_shown(reader)}"
        elif reader["type"] in _NAMED:
            yield from self._named(reader, writer, place)
        elif reader["type"] == "array":
            yield from self.faults(reader["items"], writer["items"], f"{place}[]")
        elif reader["type"] == "map":
            yield from self.faults(reader["values"], writer["values"], f"{place}{{}}")

    def _one_of(self, branches: list[Any], writer: Any, place: str) -> Iterator[str]:
        faults_by_branch = [[*self.faults(branch, writer, place)] for branch in branches]
        if not all(faults_by_branch):
            return
        types = [_resolved(branch, self.readers)["type"] for branch in branches]
        if writer["type"] in types:  # a fault inside is more precise
            yield from faults_by_branch[types.index(writer["type"])]
        else:
            yield f"{_described(place)} was {_shown(writer)}, is {_shown(branches)}"

    def _named(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        if (reader["name"], writer["name"]) in self._visited:
            return  # is being checked further up the stack
        known = {_short_name(name) for name in (reader["name"], *reader.get("aliases", ()))}
        if _short_name(writer["name"]) not in known:
            yield f"{_described(place)} was named {writer['name']!r}, is {reader['name']!r}"
        elif reader["type"] == "fixed":
            if reader["size"] != writer["size"]:
                yield f"{_described(place)} had {writer['size']} bytes, has {reader['size']}"
        elif reader["type"] == "enum":
            removed = [name for name in writer["symbols"] if name not in reader["symbols"]]
            if removed and "default" not in reader:
                yield f"{_described(place)} lacks the symbols {', '.join(removed)}"
        else:
            self._visited.add((reader["name"], writer["name"]))
            yield from self._fields(reader, writer, place)
            self._visited.discard((reader["name"], writer["name"]))

    def _fields(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        written = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            names = (each["name"], *each.get("aliases", ()))
            writer_field = next((written[name] for name in names if name in written), None)
            inner = f"{place}.{each['name']}" if place else each["name"]
            if writer_field is not None:
                yield from self.faults(each["type"], writer_field["type"], inner)
            elif "default" not in each:
                yield f"field {inner!r} is new and has no default"


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    """Return a type as a dict with a `type`, or a list of branches."""
    if isinstance(schema, str):
        return named.get(schema, {"type": schema})
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _resolved(schema["type"], named)
    return named.get(schema["type"], schema) if isinstance(schema, dict) else schema


def _logical_type(schema: Any) -> tuple[Any, ...]:
    """Return the logical part of a type, beyond its encoding; () if there is none."""
    logical = schema.get("logicalType")
    if logical == "decimal":
        return logical, schema.get("precision"), schema.get("scale", 0)
    return (logical,) if logical else ()


def _differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return bool(one and other and one != other)


def _shown(schema: Any) -> str:
    """Return a type in human-readable form."""
    if isinstance(schema, list):
        return " or ".join(map(_shown, schema))
    kind = schema if isinstance(schema, str) else schema.get("logicalType") or schema["type"]
    if kind == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    return str(kind if isinstance(kind, str) else _shown(kind))


def _described(place: str) -> str:
    return f"field {place!r}" if place else "the schema"


def _short_name(name: str) -> str:
    return name.rpartition(".")[2]
