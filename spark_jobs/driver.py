"""The driver of a job: one attempt of its tasks, the reports of their batches, and the checkpoint.

The states in a checkpoint belong to one plan and one division into shares. If they are lost, or too
old to continue from, they are rebuilt in a folder with the next number; the old folder is left for
an operator to delete.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from py4j.protocol import Py4JError

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.topology import Scope
from errata.processors.tasks import rebuild
from errata.processors.tasks.rebuild import CannotRebuildError
from errata.processors.tasks.shared import Shared
from errata.processors.wire import dead_letter, replay
from errata.schemas.errors import ErrataError
from errata.spark_jobs.blocks import SCHEMA
from errata.spark_jobs.epochs import OUTDATED
from errata.spark_jobs.executor import Recorder
from errata.spark_jobs.job import Job
from errata.spark_jobs.operator import Operator
from errata.spark_jobs.reading import NOTHING
from errata.spark_jobs.reports import BatchResult, Reports
from errata.spark_jobs.session import error_line
from errata.spark_jobs.stages import WRITTEN, Writer, name_of, source_of
from errata.topics import names
from errata.topics.cluster import LostOffsetError, TopicPartition

_FILE = "errata.json"
LAYOUT = 3
"""How states are kept in a checkpoint; those of an older layout are made anew."""


class CheckpointError(ErrataError):
    """A checkpoint belongs to another job."""


@dataclass(frozen=True)
class Division:
    """The properties that must not change while states are kept.

    Args:
        plan: Fingerprint of the plan.
        box: The scope.
        writers: The shuffle's partitions.
        layout: How states are kept.
    """

    plan: str
    box: str
    writers: int
    layout: int = LAYOUT


class Checkpoint:
    """A folder on any file system that Spark supports.

    Args:
        session: The Spark session.
        folder: Path or URL.
    """

    def __init__(self, session: Any, folder: str) -> None:
        jvm = session._jvm
        is_url = ":" in folder
        self.folder = folder.rstrip("/") if is_url else str(Path(folder).absolute())  # not Java's
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._files = self._path(self.folder).getFileSystem(session._jsc.hadoopConfiguration())

    def of(self, requested: Division) -> tuple[Division, int]:
        """Return the stored division and its number, or those of a new checkpoint.

        Args:
            requested: The division of a new checkpoint; a stored one keeps its numbers.

        Raises:
            CheckpointError: If the stored one is of another plan or job, or damaged.
        """
        stored = self._read()
        if stored is None:
            return requested, 0
        number, plan, box = stored.pop("number"), stored["plan"], stored["box"]
        is_old = stored.get("layout") != LAYOUT
        if plan != requested.plan or (box != requested.box and not is_old):
            raise CheckpointError(
                f"checkpoint {self.folder!r} is of job {box!r} of plan {plan}, but this is "
                f"{requested.box!r} of plan {requested.plan}; give --checkpoint another folder, or "
                "remove this one: states are rebuilt from the connection point"
            )
        if is_old:
            log.warning(
                "job %r: checkpoint %s is of another release of Errata, which kept states in "
                "another form; they are made anew in it", box, self.folder,
            )  # fmt: skip
            return requested, number + 1
        return Division(**stored), number

    def write(self, division: Division, number: int) -> None:
        """Record the division to which the states of a number belong."""
        text = json.dumps(asdict(division) | {"number": number}, indent=1)
        stream = self._files.create(self._path(f"{self.folder}/{_FILE}"), True)
        stream.write(text.encode())
        stream.close()

    def numbered(self, number: int) -> str:
        """Return Spark's folder for a number."""
        return f"{self.folder}/{number}"

    def has_states(self, number: int) -> bool:
        """Whether a batch of a number has been committed."""
        return bool(self._files.exists(self._path(f"{self.numbered(number)}/commits/0"))) or bool(
            self._files.exists(self._path(f"{self.numbered(number)}/offsets"))
        )

    def _read(self) -> dict[str, Any] | None:
        path = self._path(f"{self.folder}/{_FILE}")
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            stored: dict[str, Any] = json.loads(self._io.toString(stream, "UTF-8"))
            if missing := {"number", "plan", "box"} - stored.keys():
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
        except (Py4JError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"file {_FILE} of checkpoint {self.folder!r} is damaged ({error_line(error)}); "
                "remove the checkpoint: states are rebuilt from the connection point"
            ) from error
        finally:
            stream.close()
        return stored


log = logging.getLogger("errata")

IDLE_S = 0.002


_LOST_STATES = (
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_",
    "checkpoint file",
    "_metadata",
    OUTDATED,
)
"""Texts in Spark's errors that mean that files of a checkpoint are gone or damaged."""


class JobFailedError(ErrataError):
    """A job stopped; a new attempt may succeed.

    Args:
        message: What happened.
        states_lost: Whether the job can't read its states.
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
        checkpoint: The folder of the states.
        kafka: librdkafka settings, for executors.
        max_records: About how many records a batch takes at most; None: no limit.
        registry_at: Settings of the registry server, for executors; None: schemas are in a topic.
    """

    def __init__(
        self,
        shared: Shared,
        scope: Scope,
        *,
        session: Any,
        checkpoint: Checkpoint,
        kafka: Mapping[str, str | int],
        max_records: int | None = None,
        registry_at: Mapping[str, str | int] | None = None,
    ) -> None:
        self.shared, self.scope, self.session = shared, scope, session
        self.checkpoint = checkpoint
        writers = int(session.conf.get("spark.sql.shuffle.partitions"))
        requested = Division(shared.plan.fingerprint, scope.name, writers)
        self.division, self.number = checkpoint.of(requested)
        recorder = Recorder(shared.registry)
        plan = shared.plan
        job = Job(plan, scope, kafka, recorder.ids, self.division.writers)
        job = replace(job, keys=_keys(session, job))
        register(job, recorder)
        self.job = replace(
            job,
            compaction_lag_ms=shared.compaction_lag_ms,
            on_error=shared.on_error,
            max_records=max_records,
            registry_at=registry_at,
        )
        self.reports = Reports(shared, self.job)
        self.query: Any = None
        self.failure: BaseException | None = None
        self.stopping = False

    def start(
        self, *, once: bool = False, every: str | None = None, rebuild_states: bool = False
    ) -> None:
        """Fence the older attempt, claim attempt numbers, and start the query.

        Args:
            once: Whether to end when everything complete has been taken.
            every: How often a batch begins at most.
            rebuild_states: Whether to rebuild the states instead of continuing with those stored.
        """
        _finish(self.reports.begin())
        self.job = self.reports.job
        self._choose_states(rebuild_states)
        self.checkpoint.write(self.division, self.number)
        self._start_query(once, every)

    def _choose_states(self, rebuild_states: bool) -> None:
        """Decide whether the states can be continued; if not, rebuild them.

        Raises:
            CannotRebuildError: If they have to be, and the input or the arc keeps no history.
        """
        has_states = self.checkpoint.has_states(self.number)
        reason = ""
        if has_states and rebuild_states:
            reason = "its states can't be read"
        elif has_states and self._is_behind():
            reason = "its unread input may have lost superseded records"
        elif self.job.done[0] > NOTHING and not has_states:
            reason = f"checkpoint {self.checkpoint.folder} has no states for the reported epochs"
        if reason:
            self._require_history(reason)
            self.number += has_states
            log.warning(
                "job %r: %s; rebuilding them from the whole of %s",
                self.job.name, reason, " and ".join(map("arc {!r}".format, self._history)),
            )  # fmt: skip

    @property
    def _history(self) -> Sequence[str]:
        """The arcs from which states are made anew."""
        return self.scope.inputs if self.job.source is None else self.scope.outputs

    def _require_history(self, why: str) -> None:
        """Check that the states can be made anew.

        Raises:
            CannotRebuildError: If they can't.
        """
        source = self.job.source
        if source is None:
            rebuild.require_history(self.shared.plan, self.scope, why=why)
        elif not source.arc.is_connection_point:
            raise CannotRebuildError(
                f"job {self.job.name!r}: {why}, and source {source.arc.name!r} keeps no history "
                "from which to rebuild them; restore the checkpoint, or declare the source with "
                'keep="..."'
            )

    def _is_behind(self) -> bool:
        """Whether the next records to read are older than superseded records are kept."""
        if self.job.source is not None:
            return False  # its topic is nobody's arc
        cluster, arcs = self.shared.cluster, self.job.plan.topology.arcs
        before_ms = time.time_ns() // 1_000_000 - self.shared.compaction_lag_ms
        for arc, partition in self.job.places:
            if not arcs[arc].is_connection_point:
                continue
            codec, report = self.job.codec(arc), self.reports.tasks[partition].report
            place = TopicPartition(codec.topic, partition)
            first, old = report.resume.get(place, 0), cluster.offset_at(place, before_ms)
            if first < old and self._has_later(codec, place, first, old, report.done):
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
                    revisions = codec.decode(records).filter(pl.col("offset") < end)
                    if (revisions["epoch"] > done).any():
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
        for level in range(1, job.levels + 1):
            operator, keyed = Operator(job, level), blocks.groupBy("key")
            blocks = keyed.transformWithState(operator, SCHEMA, "Append", "None")
        written = blocks.mapInArrow(Writer(job), WRITTEN)
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
            result = BatchResult.of(written.collect())  # a row for each Spark task that wrote
            if result is not None:
                self.shared.view.poll()
                if self.reports.has_lost_input(result.batch):
                    raise JobFailedError(
                        f"job {self.job.name!r}: the brokers have lost records of its input, which "
                        "are written again",
                        states_lost=True,
                    )
                _finish(self.reports.commit(result))
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
                f"job {self.job.name!r}: {error_line(error)}", states_lost=lost
            ) from error

    def close(self) -> None:
        """Stop the query and close the connections; safe to call twice."""
        self.stopping = True
        if self.query is not None and self.query.isActive:
            self.query.stop()
        self.reports.close()


def _keys(session: Any, job: Job) -> tuple[int, ...]:
    """Return a key for each part of a job's steps, which Spark's hash sends to one writer each.

    The parts of a step go to the writers in turn, so that all of them work.
    """
    wanted = [slot % job.writers for step in job.stateful for slot in range(step.slots)]
    count = 64 * max(len(wanted), job.writers)  # none is missing among so many
    place = f"pmod(hash(cast(id as int)), {job.writers})"
    free = defaultdict[int, list[int]](list)
    for key, row in enumerate(session.range(0, count, 1, 1).selectExpr(place).collect()):
        free[row[0]].append(key)
    return tuple(free[writer].pop(0) for writer in wanted)


def _finish(steps: Iterator[bool]) -> None:
    """Run a generator to its end, with pauses while it is idle."""
    for busy in steps:
        if not busy:
            time.sleep(IDLE_S)


def register(job: Job, recorder: Recorder) -> None:
    """Look up every schema that executors will need."""
    plan = job.plan
    recorder.look_up(plan, dict.fromkeys((*job.scope.inputs, *job.scope.boxes, *job.outputs)))
    dead_letters = names.dead_letters_topic(plan.network)
    recorder.register(f"{dead_letters}-value", dead_letter.SCHEMA)
    for arc in plan.replayed_points_of(job.scope):
        recorder.register(f"{plan.deployment.requests(arc)}-value", replay.REQUEST_SCHEMA)
