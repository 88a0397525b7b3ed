"""Runs another engine as processes of its own, and measures it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from bench import tape
from bench.connectors import CONNECTORS
from bench.processes import Settings, children, processor_s
from bench.variants import LATENESS_MS, Windows
from errata.schemas.avro import revision_schema
from errata.schemas.fields import FieldType
from errata.spark_jobs.session import check_java
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.java import KAFKA, Jars, class_path, find_java
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec

STREAMS = Jars(
    f"kafka-streams-{KAFKA}",
    (("org.apache.kafka", "kafka-streams", KAFKA), ("org.slf4j", "slf4j-nop", "1.7.36")),
    11,
)
PATHWAY = "0.33.0"
QUIET_S, LIMIT_S, LOOK_S = 6.0, 600.0, 0.2
HERE = Path(__file__).parent
TOLERANCE = 1e-9
"""Of sums in floating point, relative."""


@dataclass(frozen=True)
class Job:
    """A query of the bench for one engine.

    Args:
        query: signed, forgetful, upserts or sliding.
        kafka: Settings of the cluster.
        source: Input topic.
        sink: Output topic.
        folder: For its state.
        windows: The windows.
    """

    query: str
    kafka: Settings
    source: str
    sink: str
    folder: Path
    windows: Windows

    @property
    def servers(self) -> str:
        """Where the brokers are."""
        return str(self.kafka["bootstrap.servers"])

    @property
    def bounds(self) -> list[str]:
        """Size, slide and lateness in ms."""
        return [*map(str, (self.windows.size_ms, self.windows.slide_ms, LATENESS_MS))]


@dataclass(frozen=True)
class Measured:
    """What a run took, and what came of it.

    Args:
        wall_s: From the first record to the append of the last result.
        processor_s: Processor time of the engine, without brokers.
        wrong: How many windows differ from a recomputation.
        windows: How many windows there are.
        rows: Most rows of state that it reported; 0 if it reports none.
        dropped: How many changes it reported as too late; 0 if it reports none.
    """

    wall_s: float
    processor_s: float
    wrong: int
    windows: int
    rows: int = 0
    dropped: int = 0


def streams(job: Job) -> list[str]:
    """Return the command of Kafka Streams; needs a Java with its compiler."""
    java = find_java()
    jars = os.pathsep.join(map(str, class_path(java, STREAMS)))
    options = ["-Xmx2g", "-cp", jars, str(HERE / "KafkaStreams.java")]
    given = [job.query, job.servers, job.source, job.sink, str(job.folder), *job.bounds]
    return [str(java), *options, *given]


def spark(job: Job) -> list[str]:
    """Return the command of plain Spark."""
    jars = ",".join(map(str, class_path(check_java(), CONNECTORS)))
    fields = {name: FieldType.parse(kind) for name, kind in tape.FIELDS.items()}
    schema = json.dumps(revision_schema("tape", fields))
    given = [job.query, job.servers, job.source, job.sink, str(job.folder), *job.bounds]
    return [sys.executable, "-m", "bench.peers.plain_spark", *given, schema, jars]


def pathway(job: Job) -> list[str]:
    """Return the command of Pathway, in an environment of its own."""
    python = pathway_python()
    given = [job.servers, job.source, job.sink, *job.bounds[:2]]
    return [str(python), str(HERE / "pathway_job.py"), *given]


def pathway_python() -> Path:
    """Return a Python that has Pathway; install it on first use.

    Raises:
        subprocess.CalledProcessError: If it can't be installed.
    """
    folder = Path(".cache", f"pathway-{PATHWAY}").absolute()
    ready, python = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install: list[str | Path] = [python, "-m", "pip", "install", *quiet, f"pathway=={PATHWAY}"]
        subprocess.run(install, check=True, capture_output=True)
        ready.touch()
    return python


def run(command: Callable[[Job], list[str]], job: Job, expected: pl.DataFrame) -> Measured:
    """Run an engine until its output is quiet, and compare its results.

    Args:
        command: Returns its command line.
        job: The query.
        expected: The windows that it must have, as of `keyed`.

    Raises:
        SystemExit: If it fails, or has no results in time.
    """
    create_topics(job.kafka, [TopicSpec(job.sink, 1, {"message.timestamp.type": "LogAppendTime"})])
    job.folder.mkdir(parents=True)
    log = job.folder.with_suffix(".log")
    cluster = KafkaCluster(job.kafka)
    with log.open("wb") as out:
        engine = subprocess.Popen(
            command(job), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        used_s = _watch(engine, cluster, job.sink)
    finally:
        _end(engine)
    told = log.read_text(errors="replace")
    begun = re.search(r"^BEGUN (\d+)$", told, re.MULTILINE)
    if begun is None or used_s is None:
        raise SystemExit(f"{' '.join(command(job)[:1])} has no results:\n{told[-3_000:]}")
    found, last_ms = _results(cluster, job)
    cluster.close()
    return Measured(
        (last_ms - int(begun[1])) / 1000,
        used_s,
        _wrong(found, expected),
        expected.height,
        max((int(each) for each in re.findall(r"^STATE (\d+)$", told, re.MULTILINE)), default=0),
        max((int(each) for each in re.findall(r"^DROPPED (\d+)$", told, re.MULTILINE)), default=0),
    )


def _watch(engine: subprocess.Popen[bytes], cluster: KafkaCluster, sink: str) -> float | None:
    """Wait until its output is quiet; return its processor time then. None: it has none."""
    place, began_s = TopicPartition(sink, 0), time.monotonic()
    used_s, end, changed_s = None, 0, began_s
    while time.monotonic() < began_s + LIMIT_S:
        is_running = engine.poll() is None
        now = cluster.end(place)
        if now != end:
            end, changed_s, used_s = now, time.monotonic(), _tree_s(engine.pid) or used_s
        if not is_running or (end and time.monotonic() > changed_s + QUIET_S):
            return used_s
        time.sleep(LOOK_S)
    return None


def _tree_s(pid: int) -> float:
    """Return the processor time of a process and those that it has started."""
    return processor_s(pid) + sum(map(_tree_s, children(pid)))


def _end(engine: subprocess.Popen[bytes]) -> None:
    """End the engine and its processes: it leads a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if engine.poll() is None:
            os.killpg(engine.pid, number)
            try:
                engine.wait(15)
            except subprocess.TimeoutExpired:
                continue


def _results(cluster: KafkaCluster, job: Job) -> tuple[pl.DataFrame, int]:
    """Return the last result of each window that has trades, and when the last one was written."""
    place, parts, last_ms = TopicPartition(job.sink, 0), list[pl.DataFrame](), 0
    end = cluster.end(place)
    reader = cluster.reader({place: 0})
    while reader.position(place) < end:
        for records in reader.poll():
            parts.append(pl.DataFrame({"key": records.keys, "value": records.values}))
            last_ms = max(last_ms, *records.times_ms)
    reader.close()
    written = pl.concat(parts).with_columns(pl.col("value").cast(pl.String))
    if job.query == "changes":
        result = written["value"].str.json_decode(_CHANGE).struct.unnest()
        held = result.filter(result["diff"] > 0).with_row_index()
        last = held.group_by("key", "start").agg(pl.all().sort_by("time", "index").last())
        key = last.select(pl.concat_str("key", "start", separator="|").alias("key"))
        values = last.select("traded", "trades").hstack(key)
    else:
        last = written.with_columns(pl.col("key").cast(pl.String)).unique("key", keep="last")
        parts_of = pl.col("value").str.split(" ")
        values = last.select(
            "key",
            traded=parts_of.list.get(0).cast(pl.Float64),
            trades=parts_of.list.get(1).cast(pl.Int64),
        )
    return values.filter(values["trades"] != 0), last_ms


_CHANGE = pl.Struct(
    {
        "key": pl.String,
        "start": pl.Int64,
        "traded": pl.Float64,
        "trades": pl.Int64,
        "diff": pl.Int64,
        "time": pl.Int64,
    }
)
"""A result of Pathway."""


def _wrong(found: pl.DataFrame, expected: pl.DataFrame) -> int:
    """Return how many windows have other results, are not there, or should not be there."""
    both = expected.join(found, on="key", how="left", suffix="@")
    near = (both["traded"] - both["traded@"]).abs() <= TOLERANCE * both["traded"].abs()
    right = (near & (both["trades"] == both["trades@"])).fill_null(False)
    may_lack = both["traded@"].is_null() & ~both["needed"]
    extra = found.join(expected, on="key", how="anti").height
    return int((~(right | may_lack)).sum()) + extra


def keyed(
    windows: pl.DataFrame, by: Sequence[str], needed: pl.Series | None = None
) -> pl.DataFrame:
    """Return expected windows as other engines write them: by one key, sums in floating point.

    Args:
        windows: The windows.
        by: The fields of a group.
        needed: Whether a window must be there; None: all.
    """
    key = pl.concat_str([*by, pl.col("window_start").cast(pl.String)], separator="|")
    return windows.select(
        key.alias("key"),
        traded=pl.col("traded").cast(pl.Float64) / 1e10,
        trades="trades",
        needed=pl.lit(True) if needed is None else needed,
    )
