"""The driver of a job: one attempt of its tasks, and the reports of their batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.scope import Scope
from errata.processors.tasks import rebuild
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.schemas.errors import ErrataError
from errata.spark_jobs.checkpoint import Checkpoint, Division
from errata.spark_jobs.epochs import NOTHING
from errata.spark_jobs.job import Job
from errata.spark_jobs.operator import OUTPUT, Operator
from errata.spark_jobs.registered import Recorder
from errata.spark_jobs.reports import Reports, Told
from errata.spark_jobs.session import told_of
from errata.spark_jobs.source import name_of, source_of
from errata.spark_jobs.writer import WRITTEN, Writer
from errata.topics.cluster import LostOffsetError, TopicPartition

log = logging.getLogger("errata")

IDLE_S = 0.002
BUCKETS = 16
"""Default number of hash buckets of the groups."""


_LOST_STATES = ("CANNOT_LOAD_STATE_STORE", "STATE_STORE_", "checkpoint file", "_metadata")
"""Texts in Spark's errors that mean that files of a checkpoint are gone or damaged."""


class JobFailedError(ErrataError):
    """A job stopped; a new attempt may succeed.

    Args:
        message: What happened.
        states_lost: Whether it can't read its states.
    """

    def __init__(self, message: str, *, states_lost: bool = False) -> None:
        self.states_lost = states_lost
        super().__init__(message)


class Driver:
    """One attempt of a job.

    Args:
        shared: What the process shares.
        scope: The job's scope.
        session: The Spark session.
        checkpoint: Where states are.
        kafka: librdkafka settings, for executors.
        buckets: How many parts groups are hashed into, if the checkpoint is new.
    """

    def __init__(
        self,
        shared: Shared,
        scope: Scope,
        *,
        session: Any,
        checkpoint: Checkpoint,
        kafka: Mapping[str, str | int],
        buckets: int = BUCKETS,
    ) -> None:
        self.shared, self.scope, self.session = shared, scope, session
        self.checkpoint = checkpoint
        writers = int(session.conf.get("spark.sql.shuffle.partitions"))
        asked = Division(shared.plan.fingerprint, scope.boxes[-1], buckets, writers)
        self.division, self.number = checkpoint.of(asked)
        recorder = Recorder(shared.registry)
        plan = shared.plan
        job = Job(plan, scope, kafka, recorder.ids, self.division.buckets, self.division.writers)
        register(job, recorder)
        self.job = replace(
            job, compaction_lag_ms=shared.compaction_lag_ms, on_error=shared.on_error
        )
        self.reports = Reports(shared, self.job)
        self.query: Any = None
        self.failure: BaseException | None = None
        self.stopping = False

    def start(self, *, once: bool = False, every: str | None = None, anew: bool = False) -> None:
        """Fence the older attempt, claim attempt numbers, and start the query.

        Args:
            once: Whether to end when everything complete has been taken.
            every: How often a batch begins at most.
            anew: Whether to leave the states that there are, and make them anew.
        """
        _finish(self.reports.begin())
        self.job = self.reports.job
        self._choose_states(anew)
        self.checkpoint.write(self.division, self.number)
        self._start_query(once, every)

    def _choose_states(self, anew: bool) -> None:
        """Decide whether the states can be continued; if not, rebuild them.

        Raises:
            CannotRebuildError: If they have to be, and the input or the arc keeps no history.
        """
        has_states = self.checkpoint.has_states(self.number)
        why = ""
        if has_states and anew:
            why = "its states can't be read"
        elif has_states and self._is_behind():
            why = "what it has not read may have lost superseded records"
        elif self.job.done[0] > NOTHING and not has_states:
            why = f"checkpoint {self.checkpoint.folder} has no states of what was reported"
        if why:
            rebuild.check(self.shared.plan, self.scope, why=why)
            self.number += has_states
            log.warning(
                "box %r: %s; they are made anew from the whole of arc %r",
                self.job.name, why, self.job.input,
            )  # fmt: skip

    def _is_behind(self) -> bool:
        """Whether the next records to read are older than superseded records are kept."""
        cluster, plan = self.shared.cluster, self.job.plan
        if not plan.arcs[self.job.input].is_connection_point:
            return False
        before_ms = time.time_ns() // 1_000_000 - self.shared.compaction_lag_ms
        codec = self.job.codec(self.job.input)
        for task in self.reports.tasks:
            place = TopicPartition(codec.topic, task.partition)
            first, old = task.report.resume.get(place, 0), cluster.offset_at(place, before_ms)
            if first < old and self._has_later(codec, place, first, old, task.report.done):
                return True
        return False

    def _has_later(
        self, codec: ArcCodec, place: TopicPartition, first: int, end: int, done: int
    ) -> bool:
        """Whether a range of a partition holds records of epochs later than `done`."""
        reader = self.shared.cluster.reader({place: first})
        try:
            while reader.position(place) < end:
                for records in reader.poll(timeout_s=0.05):
                    found = codec.decode(records).filter(pl.col("offset") < end)
                    if (found["epoch"] > done).any():
                        return True
        except LostOffsetError:
            return True
        finally:
            reader.close()
        return False

    def _start_query(self, once: bool, every: str | None) -> None:
        job, session = self.job, self.session
        session.dataSource.register(source_of(job))
        blocks = session.readStream.format(name_of(job)).load()
        states = blocks.groupBy("bucket", "slab").transformWithStateInPandas(
            Operator(job), OUTPUT, "Append", "None"
        )
        written = states.mapInPandas(Writer(job), WRITTEN)
        stream = written.writeStream.queryName(f"{job.plan.network}.{job.name}")
        stream = stream.option("checkpointLocation", self.checkpoint.numbered(self.number))
        if once:
            stream = stream.trigger(availableNow=True)
        elif every is not None:
            stream = stream.trigger(processingTime=every)
        self.query = stream.foreachBatch(self._report).start()

    def _report(self, written: Any, number: int) -> None:
        """Report a batch; all of its records have been acknowledged when its rows arrive."""
        try:
            told = Told.of(written.collect())  # a row for each Spark task that wrote
            if told is not None:
                _finish(self.reports.commit(told))
        except BaseException as error:
            if self.stopping:
                raise InterruptedError("stopped") from None  # Spark fails on long error texts
            self.failure = error
            raise

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return bool(self.query.isActive)

    def check(self) -> None:
        """Raise the error that ended the query, if it failed.

        Raises:
            JobFailedError: If the query failed.
            ErrataError: If a report could not be written.
        """
        if isinstance(self.failure, ErrataError):
            raise self.failure
        error = self.query.exception()
        if error is not None:
            lost = any(mark in str(error) for mark in _LOST_STATES)
            raise JobFailedError(
                f"box {self.job.name!r}: {told_of(error)}", states_lost=lost
            ) from error

    def close(self) -> None:
        """Stop the query and close the connections; safe to call twice."""
        self.stopping = True
        if self.query is not None and self.query.isActive:
            self.query.stop()
        self.reports.close()


def _finish(steps: Iterator[bool]) -> None:
    """Run a generator to its end, with pauses while it is idle."""
    for busy in steps:
        if not busy:
            time.sleep(IDLE_S)


def register(job: Job, recorder: Recorder) -> None:
    """Look up every schema that executors will need."""
    plan = job.plan
    recorder.look_up(plan, (job.input, *job.scope.boxes))
    for arc in plan.asked_by(job.scope):
        recorder.register(f"{plan.requests(arc)}-value", replay.REQUEST_SCHEMA)
