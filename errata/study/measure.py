"""Measures a case of the study, with the tasks and sweepers of a network, in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import polars as pl

from errata.observe.costs import counted_load, in_all, spent
from errata.processors.wire.report import CountKey
from errata.study.cases import EPOCH, Case
from errata.testing import Driver

SINGLE = 5
"""Corrections in epochs of their own, whose latency is measured."""

SHOWN = "closed", "revised", "anchor_tuples", "fetched", "expected"
"""Totals that are shown of a feed."""

Counts = Mapping[str, Mapping[str, int]]
"""By box, what it has counted."""


@dataclass(frozen=True)
class Measured:
    """What a case costs.

    Args:
        case: The case.
        tuples: Tuples of the source.
        corrections: How many of them were corrected, several in an epoch.
        seconds: Processor time of all of it.
        latency_ms: Time of a correction in an epoch of its own: the median of some.
        alone: How many tuples and results such a correction reads: the mean of some.
        counts: What the corrections cost each box.
        predicted: How many tuples and results it was predicted to read, from running counts.
    """

    case: Case
    tuples: int
    corrections: int
    seconds: float
    latency_ms: float
    alone: float
    predicted: float
    counts: Counts

    def a_correction(self, what: str, box: str | None = None) -> float:
        """Return how much of something a correction costs one box, or all of them."""
        boxes = self.counts if box is None else [box]
        return sum(self.counts.get(name, {}).get(what, 0) for name in boxes) / self.corrections

    @property
    def read(self) -> float:
        """How many tuples and results a correction reads, among others in its epoch."""
        return self.a_correction("anchor_tuples") + self.a_correction("fetched")

    @property
    def rate(self) -> float:
        """Tuples and corrections for a second of processor time."""
        return (self.tuples + self.corrections) / self.seconds

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self) | {"read": self.read, "rate": self.rate}


def measured(case: Case) -> Measured:
    """Run a case."""
    tuples, corrections = case.tuples(), case.corrections()
    *several, single = [*corrections[:-1], corrections[-1][SINGLE:], corrections[-1][:SINGLE]]
    with Driver(case.network()) as driver:
        started = time.process_time()
        for at in range(0, tuples.height, EPOCH):
            send(driver, lines(tuples[at : at + EPOCH]))
        before = box_counts(driver)
        for some in several:
            send(driver, replaced(some))
        seconds = time.process_time() - started
        after = box_counts(driver)
        costs = less(after, before)
        latencies = list[float]()
        for row in range(single.height):
            started = time.perf_counter()
            send(driver, replaced(single[row : row + 1]))
            latencies.append(1000 * (time.perf_counter() - started))
        load = counted_load(driver.plan, driver.counts())
        predicted = in_all(spent(driver.plan, load, "trades").values())
        alone = less(box_counts(driver), after)
    return Measured(
        case,
        tuples=tuples.height,
        corrections=sum(some.height for some in several),
        seconds=seconds,
        latency_ms=median(latencies),
        alone=sum(c.get("anchor_tuples", 0) + c.get("fetched", 0) for c in alone.values())
        / single.height,
        predicted=predicted.tuples + predicted.results,
        counts=costs,
    )


def of_network(driver: Driver, play: Callable[[], None]) -> list[dict[str, Any]]:
    """Return what a feed costs each box that revises results, and all of the network.

    Args:
        driver: Runs the network.
        play: Sends it the feed.
    """
    started = time.process_time()
    play()
    seconds = time.process_time() - started
    counts, plan = box_counts(driver), driver.plan
    found: list[dict[str, Any]] = [
        {"box": box} | {what: counts.get(box, {}).get(what, 0) for what in SHOWN}
        for box in plan.choices
    ]
    whole = {what: sum(line[what] for line in found) for what in SHOWN}
    return [*found, {"box": "all", **whole, "cpu_s": round(seconds, 2)}]


def repeated(case: Case, times: int) -> Measured:
    """Run a case several times; return what is the same in all, and the medians of the times."""
    runs = [measured(case) for _ in range(times)]
    return replace(
        runs[0],
        seconds=median(run.seconds for run in runs),
        latency_ms=median(run.latency_ms for run in runs),
    )


def lines(tuples: pl.DataFrame) -> pl.Series:
    """Return the insert of each tuple, as a line of JSON."""
    return tuples.select(line=pl.struct(op=pl.lit("insert"), after=pl.struct(pl.all())))[
        "line"
    ].struct.json_encode()


def replaced(tuples: pl.DataFrame) -> pl.Series:
    """Return the correction of each tuple, as a line of JSON."""
    after = pl.struct(pl.all().exclude("x"), pl.col("x") + 1)
    line = pl.struct(op=pl.lit("replace"), before=pl.struct(pl.all()), after=after)
    return tuples.select(line=line)["line"].struct.json_encode()


def send(driver: Driver, texts: pl.Series) -> None:
    """Send lines of JSON to the source, as one epoch."""
    for text in texts:
        driver.send_raw("trades", text.encode())
    driver.close_epoch()


def box_counts(driver: Driver) -> dict[str, dict[str, int]]:
    """Return the running totals of each box."""
    found: dict[str, dict[str, int]] = {}
    for totals in driver.counts().values():
        for text, count in totals.items():
            key = CountKey.parse(text)
            if key.box:
                found.setdefault(key.box, {})[key.what] = count
    return found


def less(after: Counts, before: Counts) -> dict[str, dict[str, int]]:
    """Return what boxes have counted between two moments, without zeros."""
    return {box: dict(Counter(c) - Counter(before.get(box, {}))) for box, c in after.items()}
