"""Advice on connection points: what each possible one would save, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from errata.observe.costs import Load, Spent, spent
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.declarations import Source
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.schemas.arc import Arc

OVERHEAD = 40
"""Bytes of a record beside its fields: key, header of the batch, epoch and attempt."""
WIDTHS = {"string": 16, "bytes": 16, "decimal": 8, "double": 8, "float": 4, "boolean": 1}
OTHER_WIDTH = 6
"""Bytes of a field, about; numbers and times are variable in Avro."""


@dataclass(frozen=True)
class Advice:
    """What a box would save and cost as a connection point.

    Args:
        arc: The box.
        keep_ms: How long it would keep its results: as long as its sources do.
        users: The boxes that would replay it, or fetch results from there.
        before: What a correction costs now, on average over all sources, in all boxes.
        after: What it would cost then.
        saved_bytes: Bytes that corrections read now and would not read then.
        written: Records that would be written more.
        written_bytes: Their bytes.
    """

    arc: str
    keep_ms: int
    users: tuple[str, ...]
    before: Spent
    after: Spent
    saved_bytes: float
    written: float
    written_bytes: float


def advise(network: Network, plan: CompiledPlan, load: Load) -> list[Advice]:
    """Return advice on each box that could be a connection point and is none, the best first.

    Args:
        network: The network; fields of its sources are known.
        plan: Its plan.
        load: How many tuples it has; the amounts are for as long.
    """
    found = [_advice(network, plan, load, name) for name in candidates(network, plan)]
    return sorted(
        (each for each in found if each is not None),
        key=lambda each: each.written_bytes - each.saved_bytes,
    )


def candidates(network: Network, plan: CompiledPlan) -> Iterator[str]:
    """Yield the boxes that are no connection points."""
    for name, box in network.declarations.items():
        if not isinstance(box, Source) and name in plan.boxes and box.keep is None:
            yield name


def _advice(network: Network, plan: CompiledPlan, load: Load, name: str) -> Advice | None:
    """Return advice on one box; None if it can't be one, or nobody would use it."""
    keeps = [plan.kept_ms.get(source) or 0 for source in plan.topology.sources_of[name]]
    keep_ms = max(keeps, default=0)
    if not keep_ms:
        return None
    declarations = network.declarations | {name: replace(network.declarations[name], keep=keep_ms)}
    try:
        new = compile_network(replace(network, declarations=declarations))
    except NetworkError:
        return None
    users = tuple(
        box
        for box in new.boxes
        if name in new.fetched_by(box)
        or (box in new.paths and name in (a.arc.name for a in new.paths[box].anchors))
    )
    if not users:
        return None
    corrections = sum(load.corrections.values())
    (before, read_before), (after, read_after) = (_on_average(each, load) for each in (plan, new))
    saved = (read_before - read_after) * corrections
    revised = sum(
        spent(new, load, source).get(name, Spent()).revisions * count
        for source, count in load.corrections.items()
    )
    written = 0.0 if name in plan.topology.topics else load.tuples[name] + revised
    return Advice(
        name, keep_ms, users, before, after, saved, written,
        written * width(new.topology.arcs[name]),
    )  # fmt: skip


def _on_average(plan: CompiledPlan, load: Load) -> tuple[Spent, float]:
    """Return what a correction costs all boxes, and the bytes that it reads, over all sources."""
    whole, costs, read = sum(load.corrections.values()), Spent(), 0.0
    for source, count in load.corrections.items() if whole else ():
        share = count / whole
        for name, cost in spent(plan, load, source).items():
            costs = costs.plus(Spent(*(value * share for value in cost)))
            read += bytes_read(plan, name, cost) * share
    return costs, read


def bytes_read(plan: CompiledPlan, name: str, cost: Spent) -> float:
    """Return about how many bytes are read for what a box spends."""
    read = cost.results * width(plan.boxes[name].stored) if cost.results else 0.0
    if cost.tuples:
        anchors = [anchor.arc for anchor in plan.paths[name].anchors]
        read += cost.tuples * sum(map(width, anchors)) / len(anchors)
    return read


def width(arc: Arc) -> float:
    """Return about how many bytes a record of an arc has."""
    return OVERHEAD + sum(WIDTHS.get(kind.kind, OTHER_WIDTH) for kind in arc.fields.values())
