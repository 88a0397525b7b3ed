"""Counts what the orders of propagation cost, without timing: ``make bench-propagation``.

A *step* is a bytecode that CPython executes in `processors/propagation`, or a comparison in its
queue, which is C. Steps are the same on every machine; other versions of Python have other
bytecodes. The work of the boxes does not count. Three tables:

* the steps of an epoch for each order, on graphs of up to 10,000 boxes;
* hybrid compared with dynamic, by the share of 100 boxes that follow another one in a chain;
* the cost of running a box that has nothing to do, as the static order does: here the bytecodes of
  all Python code count, and the work of Polars comes on top.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import polars as pl
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from errata import Network, Stream, tumbling
from errata.processors import propagation
from errata.processors.compile.compiler import compile_network
from errata.processors.propagation.graph import Graph
from errata.processors.propagation.orders import DYNAMIC, HYBRID, ORDERS, STATIC, choose_order
from errata.processors.tasks.scope_run import Memory, ScopeRun
from errata.schemas import revisions as frames

SIZES = (10, 100, 1_000, 10_000)
CHAIN, TREE, LAYERS, READS = 10, 100, 10, 2
SHARES = {"none": (1,), "1/5": (1, 1, 1, 2), "1/3": (1, 2), "1/2": (2,), "9/10": (10,)}
ORDERS_TOLD = ("graph", "boxes", "epoch", "have work", *ORDERS, "chosen")
SHARES_TOLD = ("follow another", DYNAMIC, HYBRID, "chosen")
IDLE_TOLD = ("box", "bytecodes")
WATCHED = str(Path(str(propagation.__file__)).parent)


# ---------------------------------------------------------------- graphs


def chains(count: int) -> Graph:
    """Return chains of ten boxes, with a source for each."""
    return Graph([[] if box % CHAIN == 0 else [box - 1] for box in range(count)])


def trees(count: int) -> Graph:
    """Return trees of a hundred boxes, each read by two others, with a source for each tree."""
    placed = (divmod(box, TREE) for box in range(count))
    return Graph([[tree * TREE + (at - 1) // 2] if at else [] for tree, at in placed])


def layers(count: int) -> Graph:
    """Return ten layers; each box reads one or two nearby boxes of the layer above, or a source."""
    rng, width = random.Random(count), count // LAYERS
    inputs: list[list[int]] = [[] for _ in range(width)]
    for box in range(width, LAYERS * width):
        layer, place = divmod(box, width)
        near = (place + rng.randint(-READS, READS) for _ in range(READS))
        inputs.append(sorted({(layer - 1) * width + other % width for other in near}))
    return Graph(inputs)


def branches(count: int, lengths: Sequence[int]) -> Graph:
    """Return a tree of chains with these lengths in turn, each read by two others."""
    inputs: list[list[int]] = []
    ends: list[int] = []
    for length in cycle(lengths):
        inputs.append([ends[(len(ends) - 1) // 2]] if ends else [])
        for _ in range(length - 1):
            inputs.append([len(inputs) - 1])
        ends.append(len(inputs) - 1)
        if len(inputs) >= count:
            return Graph(inputs)
    raise AssertionError("lengths of chains needed")


SHAPES: dict[str, Callable[[int], Graph]] = {"chains": chains, "trees": trees, "layers": layers}


@dataclass(frozen=True)
class Epoch:
    """An epoch: the sources that have input, and the boxes that emit if they run.

    Args:
        active: The boxes that read these sources.
        emits: Whether each box emits.
    """

    active: list[int]
    emits: list[bool]


def epochs(graph: Graph) -> dict[str, Epoch]:
    """Return a sparse epoch (one source in a hundred), a mixed one, and one with all sources.

    In the mixed one every other source is active, and one box in four emits nothing.
    """
    sources = [box for box, read in enumerate(graph.inputs) if not read]
    every = [True] * len(graph)
    return {
        "sparse": Epoch(sources[: max(1, len(sources) // 100)], every),
        "mixed": Epoch(sources[::2], [box % 4 != 3 for box in range(len(graph))]),
        "dense": Epoch(sources, every),
    }


# ---------------------------------------------------------------- counting


@dataclass
class Cost:
    """The cost of an epoch: its steps, and how many boxes ran."""

    steps: int = 0
    ran: int = 0


class Number(int):
    """The number of a box; reports each comparison to the counter."""

    compared: Callable[[], None] = staticmethod(lambda: None)

    def __lt__(self, other: int) -> bool:
        self.compared()
        return super().__lt__(other)


@contextmanager
def counted(cost: Cost, *, within: str) -> Iterator[None]:
    """Count the bytecodes executed in files of a folder, and the comparisons of numbers."""

    def enter(frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    def step(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        cost.steps += event == "opcode"
        return step

    def compared() -> None:
        cost.steps += 1

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        with mock.patch.object(Number, "compared", staticmethod(compared)):
            yield
    finally:
        sys.settrace(before)


def measure(order: str, graph: Graph, given: Epoch) -> Cost:
    """Return the cost of an epoch in an order."""
    cost, active = Cost(), [Number(box) for box in given.active]
    numbered = tuple(tuple(map(Number, readers)) for readers in graph.readers)
    with mock.patch.object(graph, "readers", numbered), counted(cost, within=WATCHED):
        run = ORDERS[order](graph, active)
        while (box := run.next()) is not None:
            cost.ran += 1
            run.done(box, emitted=given.emits[box])
    return cost


IDLE: dict[str, Callable[[Stream, str], object]] = {
    "filter": lambda stream, name: stream.where(name, "x > 0"),
    "map": lambda stream, name: stream.map(name, y="x + 1"),
    "aggregate": lambda stream, name: stream.aggregate(
        name, by=["key"], window=tumbling("1m"), total="sum(x)"
    ),
}


def measure_idle(kind: str, *, boxes: int = 4) -> int:
    """Return the additional bytecodes of running a box that has nothing to do."""
    fields = {"key": "string", "at": "timestamp-millis", "x": "long"}
    net = Network("idle")
    a = net.source("a", fields=fields, identity=["key"], event_time="at", keep="1d")
    none = a.where("none", "x < 0")
    for number in range(boxes):
        IDLE[kind](none, f"idle{number}")
    plan = compile_network(net).placed({"a": 1})
    (scope,) = (scope for scope in plan.topology.scopes.values() if "none" in scope.boxes)
    tuples = pl.DataFrame({"key": ["k"], "at": [1], "x": [1]})
    absent = tuples.clear(1)
    yes, no = pl.Series([True]), pl.Series([False])
    given = {"a": frames.between(absent, no, tuples, yes)}
    found = {}
    for order in (STATIC, DYNAMIC):
        run = ScopeRun(plan, replace(scope, order=order), partition=0)
        live = {name: box.no_live() for name, box in run.stateful.items()}
        memory = Memory.of(run.stateful, live, done=0, watermark=0)
        for warm in (True, False):  # what is created once does not count
            cost = Cost()
            epoch = run.epoch(1, given, memory=memory, watermark=0, uncommitted={}, committed=0)
            with counted(cost, within="" if not warm else WATCHED):
                try:
                    next(epoch)
                except StopIteration:
                    found[order] = cost.steps
    return (found[STATIC] - found[DYNAMIC]) // boxes


# ---------------------------------------------------------------- tables


Rows = Iterator[tuple[str, ...]]


def orders(sizes: Sequence[int]) -> Rows:
    """Yield the cost of an epoch in each order."""
    for shape, make in SHAPES.items():
        for size in sizes:
            graph = make(size)
            for activity, given in epochs(graph).items():
                costs = {order: measure(order, graph, given) for order in ORDERS}
                steps = (f"{cost.steps:,}" for cost in costs.values())
                ran = f"{costs[DYNAMIC].ran:,}"
                yield shape, f"{size:,}", activity, ran, *steps, choose_order(graph)


def shares() -> Rows:
    """Yield the cost of a box by the share of boxes that follow another one."""
    for share, lengths in SHARES.items():
        graph = branches(100, lengths)
        dense = epochs(graph)["dense"]
        costs = (measure(order, graph, dense) for order in (DYNAMIC, HYBRID))
        yield share, *(f"{cost.steps / cost.ran:.1f}" for cost in costs), choose_order(graph)


def idle() -> Rows:
    """Yield the cost of running a box that has nothing to do."""
    for kind in IDLE:
        yield kind, f"{measure_idle(kind):,}"


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="boxes")
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.most]
    console = Console(width=100)
    for title, columns, rows in (
        ("steps an epoch", ORDERS_TOLD, orders(sizes)),
        ("steps a box, when all run", SHARES_TOLD, shares()),
        ("a box that is run for nothing", IDLE_TOLD, idle()),
    ):
        table = Table(*columns, title=title, box=MARKDOWN)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    main()
