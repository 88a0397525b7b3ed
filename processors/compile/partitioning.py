"""What a source's arc is partitioned by when its user doesn't say."""

from __future__ import annotations

from collections.abc import Iterator

from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network


def partition_fields(
    network: Network, source: str, fields: set[str], *, identity: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the fields that need the fewest exchanges behind a source.

    Those that all aggregates behind it group by, and lookups match; if there are none, those of the
    first one that has any, the others get an exchange; its identity if there is neither. Nothing
    (one partition does all the work) if no aggregate has groups that are fields of the source.

    Args:
        network: The network.
        source: The source.
        fields: Its fields.
        identity: Its identity.
    """
    groups = list(_groups(network, source, frozenset(fields)))
    if not groups:
        return identity
    shared = [name for name in groups[0] if all(name in other for other in groups)]
    first: list[str] = next((found for found in groups if found), [])
    return tuple(shared or first)


def _groups(network: Network, arc: str, usable: frozenset[str]) -> Iterator[list[str]]:
    """Yield the fields of the source that each box behind an arc groups by, or matches."""
    for box in network.declarations.values():
        if arc not in box.reads or isinstance(box, declared.Iterate):  # that is on one partition
            continue
        below = usable
        if isinstance(box, declared.Map):
            below = usable - set(box.expressions)
        elif isinstance(box, declared.Lag):
            yield [name for name in box.by if name in usable]
        elif isinstance(box, declared.Lookup):
            matched = box.on if arc == box.input else box.on.values()
            yield [name for name in matched if name in usable]
            below = usable - set(box.expressions) if arc == box.input else frozenset()
        elif isinstance(box, declared.Aggregate):
            yield [name for name in box.by if name in usable]
            below = usable & set(box.by)
        yield from _groups(network, box.name, below)
