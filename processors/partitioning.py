"""What a source's arc is partitioned by when its user doesn't say."""

from __future__ import annotations

from collections.abc import Iterator

from processors import declarations as declared
from processors.network import Network


def partition_fields(
    network: Network, source: str, fields: set[str], *, identity: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the fields that need the fewest exchanges behind a source.

    Those that all aggregates behind it group by; if there are none, those that the first one with
    groups groups by, the others get an exchange; its identity if there is no aggregate. Nothing
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
    """Yield, for each box behind an arc that groups, the fields of the source that it groups by."""
    for box in network.declarations.values():
        if arc not in box.reads:
            continue
        below = usable
        if isinstance(box, declared.Map):
            below = usable - set(box.expressions)
        elif isinstance(box, declared.Lag):
            yield [name for name in box.by if name in usable]
        elif isinstance(box, declared.Aggregate):
            yield [name for name in box.by if name in usable]
            below = usable & set(box.by)
        yield from _groups(network, box.name, below)
