"""Places boxes of a network on Spark at random, as far as that is legal."""

import random
from collections.abc import Collection
from dataclasses import replace

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.declarations import (
    BOUND,
    PROCESS,
    SPARK,
    Aggregate,
    Declaration,
    Iterate,
    Source,
)
from errata.processors.declare.faults import NetworkError
from errata.processors.windows.row_windows import RowWindow


def place(net: Network, *, rim: random.Random, keep: int) -> set[str]:
    """Place some boxes of a network on Spark, or as many as possible; return their names.

    Args:
        net: The network, which is changed.
        rim: The random generator.
        keep: What boxes keep that others replay.
    """
    before = {
        name: replace(box, place_of_work=SPARK) if _may_ingest(box) and rim.random() < 0.5 else box
        for name, box in net.declarations.items()
    }
    looped = _above(net, [n for n, box in before.items() if isinstance(box, Iterate)])
    able = [n for n, box in before.items() if not isinstance(box, Source) and n not in looped]
    share = rim.choice([0.3, 0.6, 1.0, 1.0])
    chosen = {name for name in able if rim.random() < share}
    while chosen:
        net.declarations = {
            name: _placed(box, keep if rim.random() < 0.5 else None) if name in chosen else box
            for name, box in before.items()
        }
        for name, box in net.declarations.items():
            if isinstance(box, Iterate):
                net.declarations[name] = replace(box, place_of_work=PROCESS)
        try:
            compile_network(net)
        except NetworkError as error:
            chosen -= _refused(error, chosen, rim)
        else:
            return chosen
    net.declarations = before
    return chosen


def _may_ingest(box: Declaration) -> bool:
    return isinstance(box, Source) and box.envelope != BOUND


def _above(net: Network, names: list[str]) -> set[str]:
    """Return some boxes, and those above them: the audit tells letters of loops by the epoch."""
    found = set[str]()
    while names:
        name = names.pop()
        names += [arc for arc in net.declarations[name].reads if arc not in found]
        found.add(name)
    return found


def _placed(box: Declaration, keep: int | None) -> Declaration:
    """Return a box that is placed on Spark, with the options that it may have there."""
    box = replace(box, place_of_work=SPARK, scope=None, keep=box.keep or keep)
    if isinstance(box, Aggregate):
        box = replace(box, mode="adaptive")
        return box if isinstance(box.window, RowWindow) else replace(box, partitions=None)
    return replace(box, partitions=None) if hasattr(box, "partitions") else box


def _refused(error: NetworkError, chosen: Collection[str], rim: random.Random) -> set[str]:
    """Return which boxes are not to be on Spark: those that a fault names, or any one."""
    named = {fault.box.split("-")[0].split(".")[0] for fault in error.faults} & {*chosen}
    return named or {rim.choice(sorted(chosen))}
