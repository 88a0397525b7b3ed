"""The arc of a source: its fields, identity, event time, and how it is partitioned."""

from __future__ import annotations

from collections.abc import Iterator

from processors import declarations as declared
from processors.network import Network
from processors.typed import NAME_RULE, Source, Typed, bad_name, duration, fault, known
from schemas.arc import Arc
from schemas.errors import ErrataError
from schemas.fields import FieldType

ENVELOPES, FORMATS = ("native",), ("avro", "json")


def type_source(network: Network, box: declared.Source, typed: Typed) -> None:
    """Add the arc of a source to what is typed, or its faults."""
    before = len(typed.faults)
    fields: dict[str, FieldType] = {}
    declared_fields = box.fields or {}
    for name, text in declared_fields.items():
        if bad_name(name):
            fault(typed, box, NAME_RULE + " for a field", repr(name), "rename the field")
        try:
            fields[name] = FieldType.parse(text)
        except ErrataError as error:
            fault(typed, box, f"a type for field {name!r}", error, "declare one of those")
    if box.envelope not in ENVELOPES:
        fault(typed, box, f"an envelope of {ENVELOPES}", repr(box.envelope), "use one of those")
    if box.format not in FORMATS:
        fault(typed, box, f"a format of {FORMATS}", repr(box.format), "use one of those")
    identity = tuple(box.identity or ())
    if not identity:
        fault(typed, box, "an identity", "no fields", "name the fields that name a tuple")
    if known(typed, box, identity, declared_fields, "identity"):
        for name in identity:
            if name in fields and (fields[name].optional or fields[name].kind == "double"):
                fault(
                    typed,
                    box,
                    "identity fields that are never null and compare exactly",
                    f"{name!r} of type {fields[name]}",
                    "choose other fields, or another type",
                )
    if known(typed, box, (box.event_time,), declared_fields, "event_time"):
        kind = fields.get(box.event_time)
        if kind is not None and kind.required != FieldType("timestamp-millis"):
            fault(
                typed,
                box,
                "an event time of type timestamp-millis",
                f"{box.event_time!r} of type {kind}",
                "declare the field as timestamp-millis",
            )
    if box.partitions is not None and not (isinstance(box.partitions, int) and box.partitions > 0):
        fault(typed, box, "partitions above 0", box.partitions, "give a positive number")
    lateness = duration(typed, box, box.lateness, "lateness")
    idle_after = duration(typed, box, box.idle_after, "idle_after")
    keep = duration(typed, box, box.keep, "keep")
    if len(typed.faults) > before or lateness is None:
        return
    partition_by = box.partition_by
    if partition_by is None:
        partition_by = tuple(_grouped_by_all(network, box.name, set(fields)))
        if not _aggregates(network, box.name):
            partition_by = identity
    elif not known(typed, box, tuple(partition_by), fields, "partition_by"):
        return
    arc = Arc(box.name, fields, identity, box.event_time, tuple(partition_by), keep_ms=keep)
    typed.arcs[box.name] = arc
    typed.source_of[box.name] = box.name
    typed.sources[box.name] = Source(
        arc, box.topic, box.envelope, box.format, lateness, idle_after, box.partitions
    )


def _aggregates(network: Network, arc: str) -> Iterator[declared.Aggregate]:
    """Yield the aggregates anywhere behind an arc."""
    for box in network.declarations.values():
        if box.input == arc:
            if isinstance(box, declared.Aggregate):
                yield box
            yield from _aggregates(network, box.name)


def _grouped_by_all(network: Network, arc: str, usable: set[str]) -> list[str]:
    """Return the fields, computed by no map, that every aggregate behind an arc groups by."""
    order: list[str] = []
    for box in network.declarations.values():
        if box.input != arc:
            continue
        below = usable
        if isinstance(box, declared.Map):
            below = usable - set(box.expressions)
        elif isinstance(box, declared.Aggregate):
            below = usable & set(box.by)
            order += [name for name in box.by if name not in order]
        deeper = below
        if any(True for _ in _aggregates(network, box.name)):
            deeper = set(_grouped_by_all(network, box.name, below))
        if isinstance(box, declared.Aggregate) or deeper is not below:
            usable = usable & deeper
        order += [name for name in sorted(deeper) if name not in order]
    return [name for name in order if name in usable]
