"""Measures the cost of a tuple in sliding windows of any size: ``make bench-sliding``.

Tuples come in order, one per millisecond, in epochs; one aggregate box processes them as a scope
would. The baseline is the starting point of EEP: each tuple recomputes its whole window. Times are
processor times of whole epochs: with evicted tuples, emitted results and rebuilt state.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from errata import Network, sliding
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.compile.compiler import type_boxes
from errata.schemas import revisions as frames
from errata.schemas.fields import physical

FIELDS = {"at": "timestamp-millis", "price": "decimal(9,2)", "size": "long", "rate": "double"}
FUNCTIONS = ("sum(price)", "avg(rate)", "var_samp(size)", "max(price)")
SIZES = tuple(10**power for power in range(1, 7))
EPOCH, LEAST, NAIVE_TUPLES, NAIVE_SECONDS = 1_000, 20_000, 100, 2.0


@dataclass(frozen=True)
class Cost:
    """The cost of a tuple in µs: in the box, and with recomputation of its whole window."""

    size: int
    box: float
    naive: float


def make(function: str, size: int) -> Aggregate:
    """Return a box with one result over windows of a number of tuples."""
    net = Network("sliding")
    ticks = net.source("ticks", fields=FIELDS, identity=["at"], event_time="at", keep="1d")
    ticks.aggregate("moving", window=sliding(size), mode="upstream", result=function)
    box = type_boxes(net).boxes["moving"]
    assert isinstance(box, Aggregate)
    return box


def ticks(box: Aggregate, since: int, upto: int) -> pl.DataFrame:
    """Return the tuples of a range of milliseconds, always the same ones."""
    at = np.arange(since, upto)
    mixed = at * 0x9E3779B1 % 999_983 + 1
    return pl.DataFrame(
        {
            "at": at,
            "price": pl.Series(mixed).cast(pl.Int128),
            "size": mixed,
            "rate": mixed / 7,
        },
        schema=physical(box.input.fields),
    )


def in_the_box(box: Aggregate, size: int, *, epoch: int, least: int) -> tuple[float, int, Any]:
    """Return the cost of a tuple in the box, over a window's worth of tuples or more.

    Also returns the number of tuples, and the last result.
    """
    live, wm = box.restore(ticks(box, -size, 0), wm=0), 0
    spent, last = 0.0, None
    for upto in range(epoch, max(size, least) + 1, epoch):
        tuples = ticks(box, wm, upto)
        nobody = pl.repeat(False, tuples.height, dtype=pl.Boolean, eager=True)
        revisions = frames.between(tuples, nobody, tuples, ~nobody)
        started = time.process_time()
        try:
            next(box.process(revisions, live=live, wm_before=wm, wm=upto))
        except StopIteration as stop:
            spent += time.process_time() - started
            outcome = stop.value
        live, wm = outcome.live, upto
        results = frames.entering(outcome.revisions, ["window_end", "result"])
        if results.height != tuples.height:
            raise ArithmeticError(f"{results.height} results of {tuples.height} tuples")
        last = results.filter(pl.col("window_end") == upto)["result"][0]
    return spent / wm * 1e6, wm, last


def recomputed(box: Aggregate, size: int, upto: int) -> tuple[float, Any]:
    """Return the cost of a tuple if its whole window is recomputed by the same function.

    Also returns the result of the window that ends at `upto`.
    """
    (state,) = box.states
    (result,) = box.results.values()
    window = ticks(box, upto - size, upto)
    values = pl.DataFrame([argument.evaluate(window).alias("0") for argument in state.arguments])
    group = pl.repeat(0, size, dtype=pl.UInt32, eager=True)
    function = result.emissions[0].function
    started, count = time.process_time(), 0
    while count < NAIVE_TUPLES and time.process_time() - started < NAIVE_SECONDS:
        found = function.emit(function.accumulate(function.init(1), group, values))
        count += 1
    return (time.process_time() - started) / count * 1e6, found[0]


def measure(function: str, *, most: int, epoch: int, least: int = LEAST) -> Iterator[Cost]:
    """Yield the costs for windows of 10 tuples, 100 and so on.

    Raises:
        ArithmeticError: If a result is missing, or the last results of both ways differ.
    """
    for size in SIZES:
        if size <= most:
            box = make(function, size)
            cost, upto, told = in_the_box(box, size, epoch=epoch, least=least)
            naive, wanted = recomputed(box, size, upto)
            if told != wanted:
                raise ArithmeticError(f"{function} over {size} tuples: {told}, not {wanted}")
            yield Cost(size, cost, naive)


def row(function: str, cost: Cost, smallest: Cost) -> str:
    """Return a line of the table."""
    cells = (
        f"`{function}`",
        f"{cost.size:,}",
        f"{cost.box:.1f}",
        f"{cost.box / smallest.box:.2f}",
        f"{cost.naive:,.0f}",
        f"{cost.naive / cost.box:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


HEADS = (
    "| function | tuples in a window | us a tuple | to the smallest | recomputed | times as much |"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="tuples in the largest window")
    parser.add_argument("--epoch", type=int, default=EPOCH, help="tuples in an epoch")
    parser.add_argument("--function", action="append", help="one alone; may be repeated")
    options = parser.parse_args()
    print(HEADS)
    print(f"|{' --- |' * HEADS.count(' | ')} --- |")
    for function in options.function or FUNCTIONS:
        smallest = None
        for cost in measure(function, most=options.most, epoch=options.epoch):
            smallest = smallest or cost
            print(row(function, cost, smallest), flush=True)


if __name__ == "__main__":
    main()
