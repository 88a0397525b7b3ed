"""Measures how long after a correction its revised results come: ``make bench-latency``.

`errata up` runs a network on an embedded broker: one aggregate; three aggregates in a chain, each
in a scope of its own; or a join. Thousands of tuples are sent, then later ones that close their
windows, so that every correction requests history. Corrections are sent one by one, at ten a second
and at half of what the network can process. That is found by sending one for each tuple at once.

Prints the times from the append of a correction to the append of its result in the sink, both by
the broker's clock, and to a reader of committed records, by the clock of this machine; also in
epochs, whose length varies. ``--chart`` draws them as ``docs/img/latency.svg``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Assigned
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.processes import IN_ORDER, Settings, errata_up
from errata.render.picture import picture
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec

HEAD = """
from errata import Network, tumbling

net = Network("latency")
trades, quotes = (
    net.source(
        name, topic=f"latency-{name}", format="json", keep="30d", identity=["key"],
        fields={"key": "string", "at": "timestamp-millis", "total": "long"}, event_time="at",
    )
    for name in ("trades", "quotes")
)
"""
SUM = '"{name}", by=["key"], window=tumbling("{size}"), keep="30d", scope="{name}", '
SUM += 'total="sum(total)"'
BOXES = {
    "one aggregate": f"results = trades.aggregate({SUM.format(name='hours', size='1h')})\n",
    "three in a chain": (
        f"first = trades.aggregate({SUM.format(name='minutes', size='1m')})\n"
        f"second = first.aggregate({SUM.format(name='tens', size='10m')})\n"
        f"results = second.aggregate({SUM.format(name='hours', size='1h')})\n"
    ),
    "a join": (
        'results = net.join("priced", {"t": trades, "q": quotes}, on=["key"], keep="30d", '
        'total="t.total")\n'
    ),
}
SINK = 'results.sink("latency-results", envelope="upsert", format="json")\n'
TOPICS = [
    TopicSpec(f"latency-{name}", 1, {"message.timestamp.type": "LogAppendTime"})
    for name in ("trades", "quotes", "results")
]
INTERVALS_MS = (50, 100, 200)
HOUR_MS, MARK, LIMIT_S = 3_600_000, 1_000_000, 120.0
QUANTILES = (50, 95, 99)
MOST_A_SECOND = 4_000
CHART = Path(__file__).parents[1] / "docs" / "img" / "latency.svg"


@dataclass
class Times:
    """When corrections were appended, and their results appended and read: ms, by number."""

    appended: dict[int, int] = field(default_factory=dict)
    resulted: dict[int, int] = field(default_factory=dict)
    read: dict[int, float] = field(default_factory=dict)

    def latencies(self, numbers: range) -> tuple[list[float], list[float]]:
        """Return the ms to the append of a result, and to its reader."""
        there = [number for number in numbers if number in self.resulted]
        return (
            [float(self.resulted[number] - self.appended[number]) for number in there],
            [self.read[number] - self.appended[number] for number in there],
        )


@dataclass(frozen=True)
class Row:
    """The latencies of one network, length of epochs and load, in ms."""

    network: str
    interval_ms: int
    load: str
    rate: float
    sent: int
    appended: list[float]
    read: list[float]

    @property
    def merged(self) -> int:
        """How many corrections have no result of their own: a later one came in the same epoch."""
        return self.sent - len(self.appended)


class Feed:
    """Sends tuples and corrections, and reads the sink.

    Args:
        kafka: Settings of the broker.
        tuples: How many there are; a correction concerns one of them.
        up: The network.
    """

    def __init__(self, kafka: Settings, tuples: int, up: subprocess.Popen[bytes]) -> None:
        self.up = up
        self.producer = Producer({**kafka, **IN_ORDER, "linger.ms": 0})
        self.consumer = Consumer(
            {**kafka, "group.id": "bench", "isolation.level": "read_committed"}
            | {"fetch.wait.max.ms": 10}
        )
        self.consumer.assign([Assigned("latency-results", 0, 0)])
        self.tuples, self.times, self.sent = tuples, Times(), 0
        self.base_ms = time.time_ns() // 1_000_000 - 3 * HOUR_MS
        self.seen: set[int] = set()

    def _line(self, key: int, total: int) -> dict[str, object]:
        at = self.base_ms + key * HOUR_MS // 2 // self.tuples
        return {"key": f"k{key}", "at": at, "total": total}

    def _send(self, source: str, op: str, after: dict[str, object], number: int = -1) -> None:
        def note(error: object, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"a record can't be sent: {error}")
            if number >= 0:
                self.times.appended[number] = message.timestamp()[1]

        value = json.dumps({"op": op, "after": after}).encode()
        self.producer.produce(f"latency-{source}", value, on_delivery=note)
        self.producer.poll(0)

    def start(self) -> None:
        """Send all tuples, then later ones that close their windows; wait for the results."""
        for key in range(self.tuples):
            for source in ("trades", "quotes"):
                self._send(source, "insert", self._line(key, key))
            if key % 1_000 == 0:
                self.producer.flush()
        for source in ("trades", "quotes"):
            later = self._line(self.tuples, 0) | {"at": self.base_ms + 2 * HOUR_MS}
            self._send(source, "insert", later)
        self.producer.flush()
        self._wait(lambda: len(self.seen) >= self.tuples, "the first results")

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_done():
            self.read(0.05)
            if time.monotonic() > deadline or self.up.poll() is not None:
                raise TimeoutError(f"{what} did not come within {LIMIT_S:.0f} s")

    def correct(self) -> None:
        """Send the next correction: of another tuple each time."""
        number, self.sent = self.sent, self.sent + 1
        after = self._line(number % self.tuples, MARK + number)
        self._send("trades", "replace", after, number)

    def read(self, for_s: float) -> None:
        """Note when results come."""
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            for message in self.consumer.consume(500, min(left_s, 0.002)):
                if message.error() or message.value() is None:
                    continue
                found = json.loads(message.value() or b"")
                self.seen.add(found["key"])
                number = found["total"] - MARK
                if number >= 0 and number not in self.times.read:
                    self.times.read[number] = time.time() * 1000
                    self.times.resulted[number] = message.timestamp()[1]
            self.producer.poll(0)

    def capacity(self) -> float:
        """Correct every tuple at once; return how many results a second come."""
        first, last = self.sent, self.sent + self.tuples - 1
        while self.sent <= last:
            self.correct()
        self.producer.flush()
        numbers = range(first, last + 1)
        self._wait(lambda: all(n in self.times.read for n in numbers), "all results")
        began = min(self.times.appended[n] for n in numbers)
        ended = max(self.times.resulted[n] for n in numbers)
        return 1000 * self.tuples / max(1, ended - began)

    def paced(self, rate: float, seconds: float) -> range:
        """Send corrections at a rate; return their numbers."""
        first, began_s = self.sent, time.monotonic()
        while (passed_s := time.monotonic() - began_s) < seconds:
            while self.sent - first < passed_s * rate:
                self.correct()
            self.read(min(0.005, 1 / rate))
        numbers = range(first, self.sent)
        self.producer.flush()
        last = self.sent - 1
        self._wait(lambda: last in self.times.read, "the last result")
        self.read(1)
        return numbers


def measure(
    network: str, interval_ms: int, *, tuples: int, seconds: float, folder: Path
) -> Iterator[Row]:
    """Yield the latencies of a network, on a broker of its own, by load."""
    with EmbeddedBroker() as broker:
        kafka = dict(broker.settings)
        create_topics(kafka, TOPICS)
        folder.mkdir()
        environ = {"ERRATA_EPOCHS__INTERVAL": f"{interval_ms}ms"}
        text = HEAD + BOXES[network] + SINK
        with errata_up(text, kafka, folder, environ=environ) as up:
            feed = Feed(kafka, tuples, up)
            feed.start()
            feed.read(2)
            most = feed.capacity()
            for load, rate in (("10/s", 10.0), ("half", min(most / 2, MOST_A_SECOND))):
                feed.read(2)
                numbers = feed.paced(rate, seconds)
                latencies = feed.times.latencies(numbers)
                yield Row(network, interval_ms, load, rate, len(numbers), *latencies)
            feed.consumer.close()


def quantiles(ms: list[float]) -> list[float]:
    """Return p50, p95 and p99; not a number if there are none."""
    return [float(q) for q in np.percentile(ms, QUANTILES)] if ms else [math.nan] * len(QUANTILES)


def table(rows: list[Row]) -> Table:
    """Return the rows as a table."""
    columns = ("network", "epochs", "load", "a second", "p50", "p95", "p99", "p99 in epochs")
    shown = Table(*columns, "reader p50", "reader p99", "merged", box=MARKDOWN)
    for row in rows:
        found, read = quantiles(row.appended), quantiles(row.read)
        shown.add_row(
            row.network,
            f"{row.interval_ms} ms",
            row.load,
            f"{row.rate:,.0f}",
            *(f"{q:.0f}" for q in found),
            f"{found[-1] / row.interval_ms:.1f}",
            f"{read[0]:.0f}",
            f"{read[-1]:.0f}",
            f"{row.merged / row.sent:.1%}",
        )
    return shown


WIDTH, LEFT, RIGHT, LINE, TOP = 720, 230, 30, 20, 44
COLOURS = dict(zip(QUANTILES, ("#2a6f97", "#e8a33d", "#c92a2a"), strict=True))


def drawn(rows: list[Row]) -> str:
    """Return the latencies as SVG: p50, p95 and p99 of each row, on a logarithmic scale."""
    most = max(quantiles(row.appended)[-1] for row in rows)
    powers = math.ceil(math.log10(most))
    height = TOP + LINE * (len(rows) + 1)

    def place(ms: float) -> float:
        return LEFT + math.log10(max(ms, 1)) / powers * (WIDTH - LEFT - RIGHT)

    parts = [
        '<text x="8" y="16">ms from the append of a correction to that of its result</text>',
    ]
    for number, (quantile, colour) in enumerate(COLOURS.items()):
        x = LEFT + 200 + number * 60
        parts.append(f'<circle cx="{x}" cy="12" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 9}" y="16">p{quantile}</text>')
    for power in range(powers + 1):
        x = place(10**power)
        parts.append(f'<path d="M{x:.0f} {TOP - 8}V{height - LINE}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{TOP - 12}" text-anchor="middle">{10**power:,}</text>')
    for number, row in enumerate(rows):
        y = TOP + LINE * number + 8
        label = f"{row.network}, {row.interval_ms} ms, {row.load}"
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts += [
            f'<circle cx="{place(ms):.1f}" cy="{y}" r="5" fill="{COLOURS[quantile]}"/>'
            for quantile, ms in zip(QUANTILES, quantiles(row.appended), strict=True)
        ]
    return picture(WIDTH, height, parts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", choices=BOXES, nargs="+", default=[*BOXES])
    parser.add_argument("--intervals", type=int, nargs="+", default=[*INTERVALS_MS], metavar="MS")
    parser.add_argument("--tuples", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=20, help="under each load")
    parser.add_argument("--chart", action="store_true", help=f"draw {CHART.name}")
    parser.add_argument("--short", action="store_true", help="one network, a few seconds: for CI")
    options = parser.parse_args()
    if options.short:
        options.networks, options.intervals = options.networks[:1], [50]
        options.tuples, options.seconds = 200, 3
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors", flush=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as name:
        for network in options.networks:
            for interval_ms in options.intervals:
                folder = Path(name, f"{len(rows)}")
                for row in measure(
                    network,
                    interval_ms,
                    tuples=options.tuples,
                    seconds=options.seconds,
                    folder=folder,
                ):
                    found = ", ".join(f"{q:.0f}" for q in quantiles(row.appended))
                    print(f"    {network}, {interval_ms} ms, {row.load}: {found} ms", flush=True)
                    rows.append(row)
    Console(width=140).print(table(rows))
    if options.chart:
        CHART.write_text(drawn(rows))


if __name__ == "__main__":
    main()
