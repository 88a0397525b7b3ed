"""What a source's arc is partitioned by when its user doesn't say."""

from __future__ import annotations

from collections.abc import Iterator

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
        if arc not in box.reads:
            continue
        groups = box.grouped_by(arc)
        if groups is not None:
            yield [name for name in groups if name in usable]
        below = box.keeps(arc, usable)
        if below is not None:
            yield from _groups(network, box.name, below)
