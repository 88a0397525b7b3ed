"""The cases of the study: which windows, how many corrections, how many aggregates in a chain.

Borealis measures its two modes on one aggregate (section 6), and leaves to a planner which one is
cheaper. The cases vary one or two of these at a time around a window of 1,000 tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl

from errata.processors.boxes.modes import ADAPTIVE, MODES, UPSTREAM
from errata.processors.declare.network import Network
from errata.processors.windows.time_windows import hopping

SPACING_MS = 1_000
"""Between two tuples of the busy group."""
EPOCH = 10_000
"""Tuples of an epoch."""
LEAST = 20_000
QUIET = 20
"""Quiet groups, where groups differ."""
SPARSE = 200
"""A quiet group has one tuple where the busy one has so many."""

FIELDS = {"key": "long", "at": "timestamp-millis", "desk": "string", "x": "long"}


@dataclass(frozen=True)
class Case:
    """One point of the study.

    Args:
        sweep: Which question it belongs to, one of `SWEEPS`.
        window: Tuples in a window of the busy group.
        overlap: Windows that hold a tuple.
        rate: Share of the tuples that is corrected after all their windows have closed.
        depth: Aggregates in a chain, each over the results of the one before.
        mode: The mode of each.
        differs: Whether there are quiet groups beside the busy one.
        points: The aggregates that keep their results; None: all.
    """

    sweep: str
    window: int = 1_000
    overlap: int = 1
    rate: float = 0.01
    depth: int = 1
    mode: str = UPSTREAM
    differs: bool = False
    points: tuple[str, ...] | None = None

    @property
    def window_ms(self) -> int:
        """The length of a window."""
        return self.window * SPACING_MS

    @property
    def count(self) -> int:
        """Tuples of the busy group."""
        return max(LEAST, (2 + self.depth) * self.window)

    def arcs(self) -> list[str]:
        """Return the aggregates, from the first one down."""
        return [f"level_{level}" for level in range(1, self.depth + 1)]

    def network(self) -> Network:
        """Return the network."""
        net = Network("study")
        stream = net.source(
            "trades", fields=FIELDS, identity=["key"], event_time="at", partition_by=["desk"],
            keep="10y",
        )  # fmt: skip
        window = hopping(self.window_ms, every=self.window_ms // self.overlap)
        for arc in self.arcs():
            stream = stream.aggregate(
                arc, by=["desk"], window=window, mode=self.mode, x="sum(x)", n="count(*)",
                keep="10y" if self.points is None or arc in self.points else None,
            )  # fmt: skip
        return net

    def tuples(self) -> pl.DataFrame:
        """Return the tuples of the source, in the order of event time."""
        number = np.arange(self.count)
        desks = [pl.DataFrame({"at": number * SPACING_MS, "desk": "busy"})]
        if self.differs:
            rare = number[::SPARSE] * SPACING_MS
            desks += [
                pl.DataFrame({"at": rare + quiet, "desk": f"quiet {quiet}"})
                for quiet in range(1, QUIET + 1)
            ]
        ordered = pl.concat(desks).sort("at")
        keys = pl.int_range(ordered.height, eager=True).alias("key")
        return ordered.select(keys, "at", "desk", (keys * 7 % 1_000).alias("x"))

    def corrections(self) -> list[pl.DataFrame]:
        """Return the tuples to correct, by epoch: drawn from those whose windows have closed.

        Where groups differ, half of them are of the busy one.
        """
        rng = np.random.default_rng(0)
        tuples = self.tuples()
        last = int(tuples["at"][-1]) - self.depth * self.window_ms
        old = tuples.filter(pl.col("at") < last)
        an_epoch = max(1, round(self.rate * EPOCH))
        epochs = min(5, max(3, old.height // EPOCH))
        if self.differs:
            busy = pl.col("desk") == "busy"
            halves = [old.filter(busy), old.filter(~busy)]
        else:
            halves = [old]
        drawn = [self._drawn(half, epochs * an_epoch // len(halves), rng) for half in halves]
        mixed = pl.concat(drawn)
        mixed = mixed[rng.permutation(mixed.height)]
        return [mixed[at : at + an_epoch] for at in range(0, mixed.height, an_epoch)]

    @staticmethod
    def _drawn(tuples: pl.DataFrame, count: int, rng: np.random.Generator) -> pl.DataFrame:
        return tuples[rng.permutation(tuples.height)[:count]]


def _modes(sweep: str, **values: object) -> Iterator[Case]:
    for mode in MODES:
        yield Case(sweep, mode=mode, **values)  # type: ignore[arg-type]


WINDOWS, OVERLAPS = (10, 100, 1_000, 10_000, 100_000), (1, 5, 50)
RATES, DEPTHS = (0.0001, 0.001, 0.01, 0.05, 0.2), (1, 2, 3, 4)


def _cases() -> Iterator[Case]:
    for window, overlap in product(WINDOWS, OVERLAPS):
        yield from _modes("windows", window=window, overlap=overlap, rate=0.001)
    for rate in RATES:
        yield from _modes("rates", rate=rate, overlap=10)
    for depth in DEPTHS:
        yield from _modes("chains", window=100, overlap=10, depth=depth, rate=0.001)
    yield from _modes("groups", window=1_000, overlap=50, rate=0.001, differs=True)
    for points in ((), ("level_1",), ("level_2",), ("level_3",)):
        yield Case(
            "points", window=100, overlap=10, rate=0.001, depth=3, mode=ADAPTIVE, points=points
        )


CASES = tuple(_cases())
SHORT = tuple(
    case
    for case in CASES
    if case.sweep == "points"
    or (case.window in (100, 1_000) and case.overlap in (1, 50) and case.rate == 0.001)
)
"""A few of them, for a look."""
SWEEPS = {
    "windows": "One aggregate, by the size of its windows and how far they overlap",
    "rates": "Windows of 1,000 tuples, each tuple in 10, by the share of tuples that is corrected",
    "chains": "Chains of aggregates over windows of 100 tuples, each tuple in 10",
    "points": "A chain of three, of which at most one keeps its results",
    "groups": f"A busy group and {QUIET} quiet ones with a tuple for each {SPARSE} of it",
}
