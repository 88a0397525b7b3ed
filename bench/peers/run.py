"""Measures other engines on the bench's queries, beside Errata: ``make bench-peers``.

Each query has the same topic for all, on one embedded broker; engines take turns, and every result
is compared with a recomputation.

* signed: sums and counts by group, in windows of 30 minutes every 20, of a million trades. 1 % are
  corrected and 0.2 % deleted later; each record has its original.
* upserts: the same trades as upserts and tombstones, so that the last row of each key is state.
* sliding: windows of 1,000 s every second, inserts alone: each trade is in a thousand windows.

Kafka Streams runs exactly once, as Errata does. Its sums are floating-point numbers. Plain Spark
has no exactly-once output to Kafka, and can't take upserts. Pathway reads JSON with the amounts
already computed, at least once.

The second table shows what becomes of corrections that come after their window has closed. An
engine can forget closed windows, and then drops those; or it keeps every window for ever.

Prints medians. ``--chart`` draws the first table as ``docs/img/peers.svg``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench import tape
from bench.peers import chart, engine
from bench.peers.engine import Job, Measured
from bench.processes import Run, Settings
from bench.run import SCHEMAS, errata, fill, preload, raw
from bench.variants import DEMO, LATENESS_MS, OVERLAPPING, PEERS, TAPES
from errata.schemas import revisions as frames
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker

Engine = Callable[[Job], list[str]]
OURS, RAW = "Errata", "raw consume and produce"
ENGINES: dict[str, dict[str, Engine]] = {
    "signed": {"Kafka Streams": engine.streams, "Spark": engine.spark, "Pathway": engine.pathway},
    "upserts": {"Kafka Streams, RocksDB": engine.streams},
    "sliding": {"Kafka Streams, RocksDB": engine.streams},
}
FORGETFUL: dict[str, Engine] = {"Kafka Streams": engine.streams, "Spark": engine.spark}
SIGNED_JSON = "signed-json"
MARGIN_MS = 300_000
"""Windows that close in the end may be left out: Kafka Streams looks for them only now and then."""

Runs = dict[str, list[Measured]]
"""By engine."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="trades")
    parser.add_argument("--sliding", type=int, default=20_000, help="trades of the query sliding")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--queries", choices=PEERS, nargs="+", default=[*PEERS])
    parser.add_argument("--engines", nargs="+", help="beside Errata, these alone")
    parser.add_argument("--chart", action="store_true", help="draw docs/img/peers.svg")
    parser.add_argument("--short", action="store_true", help="20,000 trades, once: for CI")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that an engine ends, too
    if options.short:
        options.count, options.sliding, options.repeat = 20_000, 2_000, 1
    engines = {query: _chosen(ENGINES[query], options.engines) for query in options.queries}
    if "Pathway" in engines.get("signed", {}):
        try:
            engine.pathway_python()
        except subprocess.CalledProcessError as error:
            print(f"without Pathway, which can't be installed here: {error}")
            del engines["signed"]["Pathway"]
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {os.cpu_count()} processors, {options.count:,} trades", flush=True)
    counts = {name: options.count for name in TAPES} | {"inserts": options.sliding}
    taken: dict[str, Runs] = {query: defaultdict(list) for query in options.queries}
    forgetful: Runs = defaultdict(list)
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="errata-peers-") as name:
        bench = Bench(dict(broker.settings), Path(name), counts)
        for turn in range(options.repeat):
            for query, runs in taken.items():
                bench.take_turn(query, engines[query], turn, runs)
            if "signed" in taken:
                for each, command in _chosen(FORGETFUL, options.engines).items():
                    measured = bench.peer("forgetful", "signed", each, command, turn)
                    forgetful[f"{each}, windows forgotten"].append(measured)
    console = Console(width=120)
    records = {query: bench.records[PEERS[query].tape] for query in taken}
    console.print(table(taken, records))
    if "signed" in taken:
        console.print(corrections(taken["signed"] | forgetful))
    if options.chart:
        chart.draw({query: rates(runs, records[query]) for query, runs in taken.items()})


def _chosen(engines: dict[str, Engine], names: Sequence[str] | None) -> dict[str, Engine]:
    return {
        each: command
        for each, command in engines.items()
        if names is None or any(each.startswith(name) for name in names)
    }


class Bench:
    """Topics with tapes, and one run after another over them.

    Args:
        kafka: Settings of the cluster.
        folder: For the states of other engines.
        counts: Trades of each tape.
    """

    def __init__(self, kafka: Settings, folder: Path, counts: dict[str, int]) -> None:
        self.kafka, self.folder, self.counts = kafka, folder, counts
        self.records: dict[str, int] = {}
        self._expected: dict[str, pl.DataFrame] = {}
        create_topics(kafka, [SCHEMAS])

    def take_turn(self, query: str, engines: dict[str, Engine], turn: int, runs: Runs) -> None:
        """Run a query once in each engine."""
        tape_name = PEERS[query].tape
        if tape_name not in self.records:
            self.records[tape_name] = preload(self.kafka, tape_name, self.counts[tape_name])
        copied = raw(self.kafka, tape_name, self.records[tape_name], f"copy-{query}{turn}")
        runs[RAW].append(Measured(copied["wall"], copied["this"], 0, 0))
        count = self.counts[tape_name]
        ours = errata(Run(PEERS[query], self.kafka, f"peers-{query}{turn}", tape_name), count)
        used_s = ours["all"] - ours["broker"] - ours["this"]
        windows = PEERS[query].expected(count).height
        runs[OURS].append(Measured(ours["wall"], used_s, 0, windows, int(ours["rows"])))
        for each, command in engines.items():
            runs[each].append(self.peer(query, query, each, command, turn))

    def peer(self, query: str, like: str, name: str, command: Engine, turn: int) -> Measured:
        """Run a query once in another engine.

        Args:
            query: What the engine is told to do.
            like: The query whose topic it reads, and whose results it must have.
            name: The engine.
            command: Returns its command line.
            turn: The number of the turn.
        """
        sink = f"{query}-{name.split(',')[0].lower().replace(' ', '-')}-{turn}"
        source = PEERS[like].tape
        if command is engine.pathway:
            source, query = SIGNED_JSON, "changes"
            if source not in self.records:
                self.records[source] = fill_signed(self.kafka, self.counts["revisions"])
        windows = OVERLAPPING if like == "sliding" else DEMO
        job = Job(query, self.kafka, source, sink, self.folder / sink, windows)
        measured = engine.run(command, job, self.expected(like))
        print(
            f"    {query}, {name}: {measured.wall_s:.2f} s, {measured.processor_s:.1f} CPU s; "
            f"{measured.wrong} of {measured.windows} windows wrong, {measured.rows} rows",
            flush=True,
        )
        return measured

    def expected(self, query: str) -> pl.DataFrame:
        """Return the windows that a query must have; sliding ones are emitted when they close."""
        if query not in self._expected:
            name, windows, needed = PEERS[query].tape, DEMO, None
            content = PEERS[query].expected(self.counts[name])
            if query == "sliding":
                windows = OVERLAPPING
                newest: int = TAPES[name].revisions(self.counts[name])["after.at"].max()  # type: ignore[assignment]
                closed_ms = newest - LATENESS_MS - MARGIN_MS
                needed = content["window_start"] + windows.size_ms <= closed_ms
            self._expected[query] = engine.keyed(content, windows.by, needed)
        return self._expected[query]


def fill_signed(kafka: Settings, count: int) -> int:
    """Write the tape as JSON rows of plus and minus one, with amounts; return how many."""
    revisions = tape.tape(count)
    sides = []
    for side, sign, absent in (
        (frames.BEFORE, -1, frames.INSERT), (frames.AFTER, 1, frames.DELETE),
    ):  # fmt: skip
        rows = frames.side(revisions, side, list(tape.FIELDS)).with_row_index("order")
        rows = rows.filter(revisions["op"] != absent)
        amount = pl.col("notional") * pl.coalesce("index_factor", pl.lit(10**8, pl.Int128))
        sides.append(
            rows.select(
                "order",
                "at",
                key=pl.concat_str("product", "currency", separator="|"),
                amount=sign * amount.cast(pl.Float64) / 1e10,
                sign=pl.lit(sign),
            )
        )
    signed = pl.concat(sides).sort("order", "sign").drop("order")
    lines = signed.select(pl.struct(pl.all()).struct.json_encode()).to_series()
    values = lines.cast(pl.Binary).to_list()
    fill(kafka, SIGNED_JSON, values, [b""] * len(values))
    return len(values)


def middle(runs: Sequence[Measured], name: str) -> float:
    """Return the median of a figure."""
    return statistics.median(getattr(run, name) for run in runs)


def rates(runs: Runs, records: int) -> dict[str, float]:
    """Return the records a second of each engine."""
    return {each: records / middle(measured, "wall_s") for each, measured in runs.items()}


def table(taken: dict[str, Runs], records: dict[str, int]) -> Table:
    """Return rates, ratios and processor times."""
    columns = ("query", "engine", "k records/s", "to raw", "Errata is", "CPU s", "windows wrong")
    shown = Table(*columns, box=MARKDOWN)
    for query, runs in taken.items():
        rate = rates(runs, records[query])
        for each, measured in runs.items():
            wrong = f"{middle(measured, 'wrong'):.0f} of {measured[0].windows}"
            shown.add_row(
                query,
                each,
                f"{rate[each] / 1000:.1f}",
                f"{rate[each] / rate[RAW]:.3f}",
                "" if each in (OURS, RAW) else f"{rate[OURS] / rate[each]:.1f} times",
                f"{middle(measured, 'processor_s'):.1f}",
                "" if each == RAW else wrong,
            )
    return shown


def corrections(runs: Runs) -> Table:
    """Return what becomes of corrections after their window has closed."""
    columns = ("engine", "most rows of state", "changes dropped", "windows wrong")
    shown = Table(*columns, box=MARKDOWN)
    for each, measured in runs.items():
        if each != RAW:
            shown.add_row(
                each,
                f"{middle(measured, 'rows'):,.0f}" if measured[0].rows else "not told",
                f"{middle(measured, 'dropped'):,.0f}",
                f"{middle(measured, 'wrong'):,.0f} of {measured[0].windows:,}",
            )
    return shown


if __name__ == "__main__":
    main()
