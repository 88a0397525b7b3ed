"""Measures what the states of a job on Spark cost: ``make bench-spark-state``.

Of an aggregate, of a lag (``ARGS="--lag"``), or of the tuples of a source (``--source``).

Each of many groups gets one trade, all in one day's window; that batch fills the store. Then some
batches touch a share of the groups, drawn at random, with a trade more each. For each batch it
prints the bytes that Spark's state store has written and read, the seconds, the processor time, and
the memory of the largest Python worker.

``--beside plain process`` does the same work in plain Structured Streaming, which takes inserts
only and has a watermark, and in a process of Errata, which ingests the trades, too. A table has the
medians of the batches. With several numbers of groups and shares, it measures all of them. With
``--skew`` every second trade is of one group.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench import tape
from bench.connectors import CONNECTORS
from bench.paused import Paused, paused
from bench.processes import command_of, memory, processor_s
from bench.spark import (
    Portions,
    batch_s,
    differences,
    network,
    ours,
    plain,
)
from errata import Network
from errata.deploy.deployment import prepare
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.spark_jobs.session import check_java, open_session
from errata.topics.broker import EmbeddedBroker
from errata.topics.java import class_path
from errata.topics.kafka import KafkaCluster

MEGABYTE = 1 << 20
SAMPLE_S = 0.2


def trades(
    groups: int, touched: Sequence[int], *, skew: bool = False, seed: int = 7
) -> pl.DataFrame:
    """Return one trade of each group, then one more of so many groups for each batch.

    Args:
        groups: How many there are.
        touched: How many of them each batch touches.
        skew: Whether every second trade is of the first group instead.
        seed: Seed of which groups, and of the amounts.
    """
    rng = np.random.default_rng(seed)
    drawn = [np.arange(groups), *(rng.choice(groups, count, False) for count in touched)]
    group = np.concatenate(drawn)
    if skew:
        group[::2] = 0
    after = pl.DataFrame(
        {
            "key": pl.Series(np.arange(len(group))).cast(pl.String).str.zfill(9),
            "at": tape.START_MS + np.arange(len(group)) % 80_000_000,
            "product": "P" + pl.Series(group).cast(pl.String).str.zfill(8),
            "currency": pl.repeat("USD", len(group), eager=True),
            "notional": pl.Series(rng.integers(1_000_00, 1_000_000_00, len(group))).cast(pl.Int128),
            "index_factor": pl.repeat(None, len(group), dtype=pl.Int128, eager=True),
        }
    )
    there = pl.repeat(True, after.height, dtype=pl.Boolean, eager=True)
    return frames.between(after, ~there, after, there)


class Processes:
    """Watches Java and the Python workers that it starts: memory and processor time."""

    def __init__(self) -> None:
        self.most_bytes, self._taken, self._ended = 0, dict[int, float](), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def processor_s(self) -> float:
        """Processor time so far."""
        self._look()
        return sum(self._taken.values())

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        for pid in _below(next(pid for pid in _all() if _is_spark(pid))):
            self._taken[pid] = max(self._taken.get(pid, 0.0), processor_s(pid))
            if "errata.spark_jobs.daemon" in command_of(pid):
                self.most_bytes = max(self.most_bytes, memory(pid).get("VmRSS", 0))


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_spark(pid: int) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command_of(pid)


def _below(pid: int) -> Iterator[int]:
    yield pid
    pids = list[int]()
    with suppress(OSError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            pids += map(int, task.read_text().split())
    for child in pids:
        yield from _below(child)


@dataclass(frozen=True)
class Batch:
    """What an engine has spent on a batch.

    Args:
        records: Records of the batch.
        seconds: By the clock, without the start of a query.
        processor_s: Processor time of the engine, Java included.
        resident_bytes: The most memory of a Python process; None if it has none.
        written: Bytes that a state store on disk has written; None without one.
        read: Bytes that it has read.
    """

    records: int
    seconds: float
    processor_s: float
    resident_bytes: int | None
    written: float | None
    read: float | None

    @property
    def cells(self) -> list[str]:
        """The figures as text."""
        sizes = (self.written, self.read, self.resident_bytes)
        return [
            f"{self.records / self.seconds:,.0f}",
            f"{self.seconds:.1f}",
            f"{self.processor_s:.1f}",
            *("-" if size is None else f"{size / MEGABYTE:,.2f}" for size in sizes),
        ]


COLUMNS = ("records/s", "seconds", "CPU s", "written MiB", "read MiB", "process MiB")
OURS, PLAIN, PROCESS = "Errata on Spark", "plain Spark", "Errata, a process, with ingest"


def median(batches: Sequence[Batch]) -> Batch:
    """Return the batch with the median time."""
    return sorted(batches, key=lambda batch: batch.seconds)[len(batches) // 2]


def store(told: list[dict[str, Any]], name: str) -> float:
    """Return a metric of the state store in bytes, over the batches that had input."""
    metrics = [p["stateOperators"][0]["customMetrics"] for p in told if p["numInputRows"]]
    return float(sum(each.get(name, 0) for each in metrics))


def by_processes() -> Network:
    """Return the same network without Spark."""
    return network("1d", place=None)


class Engines:
    """Takes each batch in each engine, one after the other.

    Args:
        portions: Sends the batches.
        session: The session of Spark.
        folder: For the checkpoints.
        process: The process, if there is one.
        with_plain: Whether plain Spark takes the batches, too.
    """

    def __init__(
        self,
        portions: Portions,
        session: Any,
        folder: Path,
        process: Paused | None,
        *,
        with_plain: bool,
    ) -> None:
        self.portions, self.session, self.folder = portions, session, folder
        self.process, self.with_plain, self.watched = process, with_plain, Processes()

    def take(self, records: int) -> Iterator[tuple[str, Batch]]:
        """Send a batch; yield what each engine has spent on it."""
        self.portions.take(records)
        yield OURS, self._on_spark(ours, "errata", records)
        if self.with_plain:
            plainly = partial(plain, size="1 day")
            yield PLAIN, replace(self._on_spark(plainly, "plain", records), resident_bytes=None)
        if self.process is not None:
            spent = self.process.take(self.portions.sent)
            yield PROCESS, Batch(records, *spent, written=None, read=None)

    def _on_spark(
        self, run: Callable[..., list[dict[str, Any]]], folder: str, records: int
    ) -> Batch:
        watched, portions = self.watched, self.portions
        watched.most_bytes, before = 0, watched.processor_s
        told = run(self.session, portions.kafka, portions.plan, str(self.folder / folder))
        written, read = (store(told, f"rocksdbTotalBytes{way}") for way in ("Written", "Read"))
        spent_s = watched.processor_s - before
        return Batch(records, batch_s(told), spent_s, watched.most_bytes, written, read)

    def close(self) -> None:
        """Stop watching."""
        self.watched.close()


def measure(given: argparse.Namespace, groups: int) -> tuple[dict[tuple[str, str], Batch], int]:
    """Measure all shares of so many groups.

    Returns:
        The median batch of each engine, by what it does; how many results were wrong.
    """
    shares = [max(1, int(groups * share)) for share in given.touched]
    sizes = [share for share in shares for _ in range(given.batches)]
    revisions = trades(groups, sizes, skew=given.skew)
    found: dict[tuple[str, str], list[Batch]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="errata-bench-") as name,
        EmbeddedBroker() as broker,
        ExitStack() as opened,
    ):
        folder, kafka = Path(name), dict(broker.settings)
        cluster = KafkaCluster(kafka)
        settings = {"spark.sql.shuffle.partitions": str(given.writers)}
        if given.beside:
            jars = map(str, class_path(check_java(), CONNECTORS))
            settings |= {"spark.jars": ",".join(jars), "spark.driver.memory": "4g"}
        session = open_session(
            master=f"local[{given.cores}]", settings=settings, log=folder / "spark.log"
        )
        net = network("1d", lag=given.lag, source=given.source)
        portions = Portions(kafka, cluster, revisions, folder / "state", net)
        process = None
        if "process" in given.beside:
            process = opened.enter_context(paused(by_processes, kafka, folder / "process"))
        engines = Engines(portions, session, folder, process, with_plain="plain" in given.beside)
        print(f"{groups:,} groups, {given.writers} tasks a batch", flush=True)
        for number, records in enumerate([groups, *sizes]):
            what = f"{records:,} of {groups:,} groups" if number else f"the first {groups:,}"
            for engine, batch in engines.take(records):
                found.setdefault((what, engine), []).append(batch)
                told = (f"{c} {v}" for c, v in zip(COLUMNS, batch.cells, strict=True))
                print(f"  {what}, {engine}: {', '.join(told)}", flush=True)
        engines.close()
        wrong = differences(cluster, portions.plan, revisions)
        if process is not None:
            plan = prepare(by_processes(), Place(kafka, folder / "look"), cluster)
            wrong += differences(cluster, plan, revisions)
        session.stop()
        cluster.close()
    return {key: median(batches) for key, batches in found.items()}, wrong


def main() -> int:
    """Run the benchmark; print each batch, and the medians as a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--touched", type=float, nargs="+", default=[0.01], help="of the groups")
    parser.add_argument("--batches", type=int, default=6, help="of each share")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--writers", type=int, default=4, help="shuffle partitions")
    parser.add_argument("--skew", action="store_true", help="half of all trades are of one group")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--lag", action="store_true", help="a lag in place of the aggregate")
    kinds.add_argument("--source", action="store_true", help="a source, and no box")
    kinds.add_argument(
        "--beside", nargs="*", default=(), choices=["plain", "process"], help="other engines"
    )
    given = parser.parse_args()
    table = Table("batch", "engine", *COLUMNS, box=MARKDOWN)
    wrong = 0
    for groups in given.groups:
        medians, differing = measure(given, groups)
        wrong += differing
        for (what, engine), batch in medians.items():
            table.add_row(what, engine, *batch.cells)
    Console(width=160).print(table)
    print(f"{wrong} results differ from a recomputation")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
