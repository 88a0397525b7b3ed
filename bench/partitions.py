"""Measures what the demo's window costs over more partitions and processes: ``make bench-scale``.

The same trades go through topics of 1 to 16 partitions, in one process; then through 16 partitions
in 2 to 8 processes, each with a part of them. Every result is compared with a recomputation. Prints
the processor time of Errata's processes for a million records, and its ratio to one partition.
"""

from __future__ import annotations

import argparse
import os
import statistics

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.processes import Run
from bench.run import SCHEMAS, errata, preload
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker

VARIANT, TAPE = "window", "revisions"
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (16, 2), (16, 4), (16, 8))
"""Partitions, and processes."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500_000, help="trades")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {options.count:,} trades")
    taken: dict[tuple[int, int], list[float]] = {shape: [] for shape in SHAPES}
    with EmbeddedBroker() as broker:
        kafka, records = dict(broker.settings), 0
        create_topics(kafka, [SCHEMAS])
        for partitions in dict.fromkeys(partitions for partitions, _ in SHAPES):
            topic = f"{TAPE}-{partitions}"
            records = preload(kafka, TAPE, options.count, topic=topic, partitions=partitions)
        for turn in range(options.repeat):
            for partitions, parts in SHAPES:
                topic, name = f"{TAPE}-{partitions}", f"bench{turn}-{partitions}-{parts}"
                used = errata(Run(VARIANT, kafka, name, topic, parts), options.count)
                taken[partitions, parts].append(used["all"] - used["broker"] - used["this"])
    shown = Table("partitions", "processes", "CPU s a million", "to one partition", box=MARKDOWN)
    middle = {shape: statistics.median(runs) * 1e6 / records for shape, runs in taken.items()}
    for (partitions, parts), cpu_s in middle.items():
        share = cpu_s / middle[1, 1]
        shown.add_row(str(partitions), str(parts), f"{cpu_s:.1f}", f"{share:.2f}")
    Console(width=100).print(shown)


if __name__ == "__main__":
    main()
