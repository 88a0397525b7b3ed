"""Exchanges: topics that bring the tuples of an arc to the tasks that own their new partitions.

Any task that computes a tuple's new partition writes to ``<box>.exchange``, to any partition of it.
The box itself reads the exchange, nets by identity per epoch, and is the only writer of its arc
(``docs/protocol.md#2-revisions``).
"""

from __future__ import annotations

from dataclasses import replace

from errata.processors.boxes.forward import Forward
from errata.processors.compile.typed import Typed
from errata.processors.plan.arc_name import exchange_of
from errata.schemas.arc import Arc


def passing(typed: Typed, arc: Arc, *, partitions: int | None = None) -> Arc:
    """Put an exchange before an arc whose box computes its partition fields; return its arc.

    The box writes the exchange; a `Forward` reads it and writes the arc.

    Args:
        typed: The result so far; gets the exchange.
        arc: The arc.
        partitions: Partitions of both; None: as many as the box's input has.
    """
    exchange = replace(arc, name=exchange_of(arc.name), keep_ms=None, exchange=True)
    typed.arcs[exchange.name] = exchange
    typed.exchanged[exchange.name] = partitions
    return exchange


def repartitioned(
    typed: Typed,
    box: str,
    above: Arc,
    *,
    by: tuple[str, ...],
    partitions: int | tuple[str, ...] | None,
) -> Arc:
    """Put an exchange between an arc and a box that reads it; return the exchange's arc.

    In a loop there is one partition, and no exchange: the arc itself is returned.

    Args:
        typed: The result so far; gets the exchange.
        box: The reading box.
        above: The arc.
        by: Fields by which the exchange is partitioned.
        partitions: Its partitions; None: as many as the arc has; names: as many as the widest of
            these arcs.
    """
    if typed.is_loop:
        return above
    name = exchange_of(box)
    arc = replace(above, name=name, partition_by=by, keep_ms=None, exchange=True)
    typed.arcs[name] = arc
    typed.boxes[name] = Forward(arc, above.name)
    typed.exchanged[name] = partitions
    return arc
