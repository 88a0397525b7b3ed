"""Measures what one correction costs while history grows: ``make bench-history``.

A sweeper's copy holds trades of 1,000 products, one every 10 ms, and another one the results of an
aggregate. Then single trades are corrected, at random places of all history, and one aggregate box
processes each correction with what it requests from the copies: upstream the tuples of the window's
group, downstream one result. Times are processor times.

Prints the cost by the size of history; upstream also by the length of windows (the radius), and for
a group that is alone in its window. Draws the first one as ``docs/img/history.svg`` (``--chart``).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table

from errata import Network, tumbling
from errata.processors.boxes.base import RESULTS
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.render.lines import drawn
from errata.schemas import revisions as frames
from errata.sweepers.store import Store

FIELDS = {"key": "long", "at": "timestamp-millis", "product": "string", "size": "long"}
PRODUCTS, SPACING_MS = 1_000, 10
WINDOW_ROWS = 180_000
"""Trades in the shortest span that is appended at once: half an hour."""
RADII_MS = (60_000, 600_000, 1_800_000, 18_000_000)
GROUP_ROWS = 1_000_000
CORRECTIONS = 50
COLOURS = {"upstream": "#2a6f97", "downstream": "#2f9e44"}
CHART = Path(__file__).parents[1] / "docs" / "img" / "history.svg"


def plan_of(mode: str, window_ms: int) -> CompiledPlan:
    """Return the plan of one aggregate."""
    net = Network("history")
    trades = net.source(
        "trades", topic="trades", fields=FIELDS, identity=["key"], event_time="at", keep="100y",
        partition_by=["product"],
    )  # fmt: skip
    trades.aggregate(
        "totals", by=["product"], window=tumbling(window_ms), mode=mode, keep="100y",
        traded="sum(size)", trades="count(*)",
    )  # fmt: skip
    return compile_network(net)


def trades(since: int, upto: int, products: int) -> pl.DataFrame:
    """Return the trades of a range of numbers, always the same ones."""
    number = np.arange(since, upto)
    mixed = number * 0x9E3779B1 % 999_983
    columns: dict[str, Any] = {
        "key": number,
        "at": number * SPACING_MS,
        "product": "P" + pl.Series(mixed % products).cast(pl.String).str.zfill(4),
        "size": mixed,
    }
    return pl.DataFrame(columns)


def inserted(tuples: pl.DataFrame, epoch: int) -> pl.DataFrame:
    """Return the insert of each tuple."""
    nobody = pl.Series([False]).new_from_index(False, tuples.height)
    revisions = frames.between(tuples, nobody, tuples, ~nobody)
    return revisions.with_columns(pl.lit(epoch, pl.Int64).alias("epoch"))


class History:
    """A copy of trades, and one of the results of half an hour each.

    Args:
        folder: For the copies.
        products: Number of products.
    """

    def __init__(self, folder: Path, products: int = PRODUCTS) -> None:
        self.plan, self.products = plan_of("downstream", WINDOW_ROWS * SPACING_MS), products
        self.count, self.epoch = 0, 0
        arcs = self.plan.topology.arcs
        self.trades, self.results = (
            Store(folder / name, arc=arcs[name], clustered=self.plan.requested_by(name))
            for name in ("trades", "totals")
        )

    def grow(self, count: int) -> None:
        """Append trades and their results until there are about so many."""
        box = self.plan.boxes["totals"]
        starts = range(self.count, count, WINDOW_ROWS)
        for start in track(starts, f"{count:,} trades", transient=True):
            tuples, self.epoch = trades(start, start + WINDOW_ROWS, self.products), self.epoch + 1
            self.count = start + WINDOW_ROWS
            where = {"upto": self.epoch, "resume": self.count}
            self.trades.append(inserted(tuples, self.epoch), **where)
            wm = self.count * SPACING_MS
            self.results.append(inserted(box.recompute(tuples, wm=wm), self.epoch), **where)

    def correct(self, plan: CompiledPlan, number: int) -> float:
        """Return the ms of processor time that the correction of a trade takes."""
        tuples = trades(number, number + 1, self.products)
        after = tuples.with_columns(pl.col("size") + 1)
        there = pl.Series([True])
        revisions = frames.between(tuples, there, after, there)
        box, wm = plan.boxes["totals"], self.count * SPACING_MS
        (anchor,) = plan.paths["totals"].anchors
        steps = box.process(revisions, live=box.no_live(), wm_before=wm, wm=wm)
        taken_s, answers = 0.0, None
        while True:
            started = time.process_time()
            try:
                need = next(steps) if answers is None else steps.send(answers)
            except StopIteration as stop:
                if stop.value.revisions.height != 1:
                    raise SystemExit("the result is not revised") from None
                return 1000 * (taken_s + time.process_time() - started)
            if need.kind == RESULTS:
                answers = [self.results.as_of(self.epoch, need.ranges)]
            else:
                answers = [self.trades.as_of(self.epoch, anchor.ranges(need.ranges))]
            taken_s += time.process_time() - started
            if need.kind != RESULTS:  # the copy has the correction by then
                corrected = pl.when(pl.col("key") == number).then(pl.col("size") + 1)
                answers = [answers[0].with_columns(corrected.otherwise("size").alias("size"))]

    def median(self, mode: str, window_ms: int, rng: np.random.Generator) -> float:
        """Return the median of the ms of several corrections at random places."""
        plan = plan_of(mode, window_ms)
        last = self.count - self.count % (window_ms // SPACING_MS)
        numbers: npt.NDArray[np.int64] = rng.integers(0, last, CORRECTIONS)
        return statistics.median(self.correct(plan, number) for number in numbers.tolist())


def sizes(most: int) -> Iterator[int]:
    """Yield the sizes of history: powers of ten from the least that holds a window."""
    size = 10**6
    while size <= most:
        yield size
        size *= 10


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=1e7, help="trades in the largest history")
    parser.add_argument("--chart", action="store_true", help=f"draw {CHART.name}")
    parser.add_argument("--short", action="store_true", help="one size: for CI")
    options = parser.parse_args()
    most, rng = 10**6 if options.short else int(options.most), np.random.default_rng(7)
    console = Console(width=100)
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in COLOURS}
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as name:
        history = History(Path(name))
        shown = Table("trades", *COLOURS, box=MARKDOWN, title="ms by size of history")
        for size in sizes(most):
            history.grow(size)
            row = {mode: history.median(mode, WINDOW_ROWS * SPACING_MS, rng) for mode in COLOURS}
            for mode, ms in row.items():
                found[mode].append((size, ms))
            shown.add_row(f"{size:,}", *(f"{ms:.1f}" for ms in row.values()))
        console.print(shown)
        shown = Table("window", "its trades", "of one group", "ms", box=MARKDOWN)
        for radius_ms in RADII_MS:
            rows = radius_ms // SPACING_MS
            if rows <= history.count:
                ms = history.median("upstream", radius_ms, rng)
                shown.add_row(
                    f"{radius_ms / 60_000:g} min", f"{rows:,}", f"{rows // PRODUCTS:,}", f"{ms:.1f}"
                )
        console.print(shown)
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as name:
        alone = History(Path(name), products=1)
        alone.grow(GROUP_ROWS // 5 if options.short else GROUP_ROWS)
        window_ms = alone.count * SPACING_MS
        ms = alone.median("upstream", window_ms, rng)
        short_ms = alone.median("downstream", WINDOW_ROWS * SPACING_MS, rng)
        print(
            f"a group of {alone.count:,} trades alone in its window: {ms:.0f} ms upstream; "
            f"downstream, half-hour windows of {WINDOW_ROWS:,} trades: {short_ms:.1f} ms"
        )
    if options.chart:
        CHART.write_text(
            drawn(found, COLOURS, title="ms of processor time for one correction", x="trades")
        )


if __name__ == "__main__":
    main()
