"""Measures what the demo's window costs over more partitions and processes: ``make bench-scale``.

The same trades go through topics of 1 to 16 partitions, in one process; then through 16 partitions
in 2 to 8 processes, each with a part of them. The topic is partitioned by trade, the arc by
product: every ingest task writes to every partition. Each shape runs with a fifth of the trades,
too. The difference is what more trades cost, the rest is what it costs to start and to end. Every
result is compared with a recomputation.

Prints the processor time of Errata's processes for a million more records, with its ratio to that
of one partition, and the rest.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict
from itertools import product

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.processes import Run
from bench.run import SCHEMAS, errata, preload
from bench.variants import VARIANTS
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker

VARIANT = VARIANTS["window"]
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (16, 2), (16, 4), (16, 8))
"""Partitions, and processes."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="trades")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    counts = options.count // 5, options.count
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {options.count:,} trades")
    records: dict[int, int] = {}
    taken: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    with EmbeddedBroker() as broker:
        kafka = dict(broker.settings)
        create_topics(kafka, [SCHEMAS])
        for partitions, count in product(dict.fromkeys(p for p, _ in SHAPES), counts):
            topic = topic_of(partitions, count)
            records[count] = preload(kafka, VARIANT.tape, count, topic=topic, partitions=partitions)
        for turn, (partitions, parts), count in product(range(options.repeat), SHAPES, counts):
            name = f"bench{turn}-{partitions}-{parts}-{count}"
            used = errata(Run(VARIANT, kafka, name, topic_of(partitions, count), parts), count)
            cpu_s = used["all"] - used["broker"] - used["this"]
            taken[partitions, parts, count].append(cpu_s)
    columns = ("partitions", "processes", "CPU s a million more", "to one partition", "the rest, s")
    shown = Table(*columns, box=MARKDOWN)
    few, many = counts
    middle = {shape: statistics.median(runs) for shape, runs in taken.items()}
    more = {
        shape: (middle[*shape, many] - middle[*shape, few]) / (records[many] - records[few])
        for shape in SHAPES
    }
    for shape, cpu_s in more.items():
        rest_s = middle[*shape, few] - cpu_s * records[few]
        partitions, parts = map(str, shape)
        share = f"{cpu_s / more[1, 1]:.2f}"
        shown.add_row(partitions, parts, f"{cpu_s * 1e6:.1f}", share, f"{rest_s:.1f}")
    Console(width=100).print(shown)


def topic_of(partitions: int, count: int) -> str:
    """Return the topic of a number of trades in a number of partitions."""
    return f"{VARIANT.tape}-{partitions}-{count}"


if __name__ == "__main__":
    main()
