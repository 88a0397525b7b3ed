"""Measures what the states of a job on Spark cost: ``make bench-spark-state``.

Of an aggregate, of a lag (``ARGS="--lag"``), or of the tuples of a source (``--source``).

Each of many groups gets one trade, all in one day's window; that batch fills the store. Then some
batches touch a share of the groups, drawn at random, with a trade more each. For each batch it
prints the bytes that Spark's state store has written and read, the seconds, the processor time of
Java and its Python workers, and the memory of the largest worker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench import tape
from bench.processes import command_of, memory, processor_s
from bench.spark import Portions, batch_s, differences, network, ours
from errata.schemas import revisions as frames
from errata.spark_jobs.session import open_session
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster

MEGABYTE = 1 << 20
SAMPLE_S = 0.2


def trades(groups: int, touched: int, batches: int, *, seed: int = 7) -> pl.DataFrame:
    """Return one trade of each group, then one more of some groups for each batch."""
    rng = np.random.default_rng(seed)
    drawn = [np.arange(groups), *(rng.choice(groups, touched, False) for _ in range(batches))]
    group = np.concatenate(drawn)
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


def store(told: list[dict[str, Any]], name: str) -> float:
    """Return a metric of the state store in megabytes, over the batches that had input."""
    metrics = [p["stateOperators"][0]["customMetrics"] for p in told if p["numInputRows"]]
    return float(sum(each.get(name, 0) for each in metrics)) / MEGABYTE


def main() -> int:
    """Run the benchmark; print a line for each batch."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--touched", type=float, default=0.01, help="share of the groups")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--lag", action="store_true", help="a lag in place of the aggregate")
    parser.add_argument("--source", action="store_true", help="a source, and no box")
    parser.add_argument("--writers", type=int, default=4, help="shuffle partitions")
    given = parser.parse_args()
    touched = max(1, int(given.groups * given.touched))
    revisions = trades(given.groups, touched, given.batches)
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as name, EmbeddedBroker() as broker:
        folder, kafka = Path(name), dict(broker.settings)
        cluster = KafkaCluster(kafka)
        session = open_session(
            master=f"local[{given.cores}]",
            settings={"spark.sql.shuffle.partitions": str(given.writers)},
            log=folder / "spark.log",
        )
        net = network("1d", lag=given.lag, source=given.source)
        portions = Portions(kafka, cluster, revisions, folder / "state", net)
        print(f"{given.groups:,} groups, {touched:,} touched, {given.writers} tasks a batch")
        print("batch   records  written MiB  read MiB  seconds  CPU s  worker MiB", flush=True)
        watched = Processes()
        for number in range(given.batches + 1):
            size = touched if number else given.groups
            portions.take(size)
            watched.most_bytes, before = 0, watched.processor_s
            told = ours(session, kafka, portions.plan, str(folder / "errata"))
            written, read = (store(told, f"rocksdbTotalBytes{way}") for way in ("Written", "Read"))
            spent = watched.processor_s - before
            print(
                f"{number:5}{size:10,}{written:13.1f}{read:10.1f}{batch_s(told):9.1f}{spent:7.1f}"
                f"{watched.most_bytes / MEGABYTE:12.0f}",
                flush=True,
            )
        watched.close()
        wrong = differences(cluster, portions.plan, revisions)
        session.stop()
        cluster.close()
    print(f"{wrong} results differ from a recomputation")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
