"""What one process knows of everybody's progress.

Frontiers are a plain minimum over the plan's tasks; a task that has nothing to do writes nothing,
and its frontier is inferred from its input (DESIGN 5).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import polars as pl

from processors import report as reports
from processors.deployed import PLAN_KEY, SWITCH_KEY, declared_end
from processors.plan import Plan
from processors.report import FOREVER, IDLE, NEVER, Report
from processors.scopes import INGEST
from schemas import framing
from topics import names
from topics.catch_up import catch_up
from topics.cluster import Cluster, Records, TopicPartition

ALL = 2**62
"""A frontier beyond every epoch: nothing can be produced any more."""


class View:
    """The newest report of every task, and what follows from them.

    Args:
        cluster: Where the progress topic is.
        plan: Says which tasks there are.
    """

    def __init__(self, cluster: Cluster, *, plan: Plan) -> None:
        self.cluster, self.plan = cluster, plan
        self.source = TopicPartition(names.progress_topic(plan.network), 0)
        self.plans = TopicPartition(names.plan_topic(plan.network), 0)
        self.reader = cluster.reader({self.source: 0, self.plans: 0})
        self.reports: dict[str, Report] = {}
        self.ends: dict[str, dict[int, int]] = {}
        self.version = 1
        """The newest version of the plan that was deployed or announced."""

    def poll(self) -> None:
        """Take in the reports, and the declared ends of sources, that have arrived."""
        for records in self.reader.poll():
            self._take(records)

    def catch_up(self, *, limit_s: float = 30.0) -> None:
        """Take in every report that is there now, and what has arrived of declared ends.

        Raises:
            ClusterError: If that takes too long: an open transaction may hold them back.
        """
        self.poll()
        for records in catch_up(self.cluster, self.reader, self.source, limit_s=limit_s):
            self._take(records)

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        self.reader.close()

    def _take(self, records: Records) -> None:
        take = self._take_report if records.source == self.source else self._take_told
        for key, value in zip(records.keys, records.values, strict=True):
            if key is not None and value is not None:
                take(key.decode(errors="replace"), value)

    def _take_report(self, key: str, value: bytes) -> None:
        try:
            report = reports.decode(value[framing.HEAD_BYTES :])
        except reports.ReportError:
            return  # not ours: whoever wrote it is not believed
        if report.task == key:
            self.note(report)

    def _take_told(self, key: str, value: bytes) -> None:
        if key in (PLAN_KEY, SWITCH_KEY):
            self.version = max(self.version, json.loads(value)["version"])
        source = declared_end(key)
        if source is not None:
            self.ends[source] = {int(p): offset for p, offset in json.loads(value).items()}

    def note(self, report: Report) -> None:
        """Take in a report, unless a newer one of the same task is known."""
        known = self.of(report.task)
        if (report.attempt, report.done) >= (known.attempt, known.done):
            self.reports[report.task] = report

    def has_read_to(self, end: int) -> bool:
        """Whether all reports before this offset have been taken in."""
        return self.reader.position(self.source) >= end

    def of(self, task: str) -> Report:
        """Return the newest report of a task; an empty one before its first."""
        return self.reports.get(task) or Report(task)

    # ---------------------------------------------------------------- who writes and reads what

    def tasks(self, scope: str) -> list[str]:
        """Return the tasks of a scope, a partition each."""
        return self.plan.tasks(scope)

    def writers(self, arc: str, partition: int) -> list[str]:
        """Return the tasks that may write to one partition of an arc."""
        scope = self.plan.scope_of(arc)
        if arc in self.plan.sources or self.plan.arcs[arc].exchange:
            return self.tasks(scope)
        return [f"{scope}.{partition}"]

    def read_by(self, scope: str, partition: int) -> list[tuple[str, int]]:
        """Return the arcs and partitions that a task's output depends on: on Spark, all."""
        found = self.plan.scopes[scope]
        return [
            (arc, number)
            for arc in found.inputs
            for number in (
                range(self.plan.partition_count(arc)) if found.on_spark else (partition,)
            )
        ]

    # ---------------------------------------------------------------- belief

    def committed(self, tasks: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return what to believe of some tasks now: by attempt, the last epoch."""
        return {task: dict(self.of(task).committed) for task in tasks}

    def believed(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions that exist: covered by the report of their task; copies once."""
        return believed(revisions, self.committed(revisions["task"].unique()))

    # ---------------------------------------------------------------- frontiers

    def frontier(self, task: str) -> int:
        """Return the last epoch that a task can no longer produce."""
        report = self.of(task)
        scope, _, partition = task.rpartition(".")
        if scope.startswith(INGEST):
            return report.done
        inferred = ALL
        for arc, number in self.read_by(scope, int(partition)):
            place, reader = TopicPartition(self.plan.topic(arc), number), f"{scope}.{number}"
            for writer in self.writers(arc, number):
                end, epoch = self.of(writer).ends.get(place, (0, NEVER))
                if epoch > report.done and end > self.of(reader).resume.get(place, 0):
                    return report.done  # something is there that it has not processed
                inferred = min(inferred, self.frontier(writer))
        if inferred <= report.done:
            return report.done
        moves = self.moves(task, since=report.done, upto=inferred)
        return moves[0][0] - 1 if moves else inferred

    def holds(self, task: str) -> bool:
        """Whether a task goes by the watermark: windows of its own, or that it replays, close."""
        scope = self.plan.scopes.get(task.rpartition(".")[0])
        return scope is not None and any(map(self.plan.goes_by_watermark, scope.boxes))

    def complete(self, arc: str, partition: int) -> tuple[int, int]:
        """Return the last complete epoch of an arc's partition, and the offset it lies before."""
        place = TopicPartition(self.plan.topic(arc), partition)
        writers = self.writers(arc, partition)
        end = max(self.of(writer).ends.get(place, (0, 0))[0] for writer in writers)
        return min(self.frontier(writer) for writer in writers), end

    # ---------------------------------------------------------------- watermarks

    def moves(self, task: str, *, since: int, upto: int) -> list[tuple[int, int]]:
        """Return (epoch, watermark) wherever the watermark of a holding task rises.

        wm(e) is data: the minimum over the sources' partitions of what each had seen in epochs <=
        e, idle ones left out, never falling. Readers get the same whenever they look.

        Args:
            task: Its report tells wm(done), below which the watermark never falls.
            since: Epochs after this one, at least the task's `done`.
            upto: Epochs up to this one, complete for the source.
        """
        if not self.holds(task):
            return []
        return self.rises(task, since=since, upto=upto, from_ms=self.of(task).watermark)

    def settled(self, arc: str, *, upto: int) -> int:
        """Return the event time before which no tuple of an arc can be revised after an epoch.

        What is older than `keep` behind what a partition of a source has seen is refused there. Of
        one that is idle, or has ended, it is not told what it had seen by then: NEVER.
        """
        plan, found = self.plan, [FOREVER]
        for source in plan.sources_of[arc]:
            keep_ms = plan.arcs[source].keep_ms
            for task in self.tasks(f"{INGEST}{source}"):
                pairs = [wm for epoch, wm in self.of(task).watermarks if epoch <= upto]
                known = keep_ms is not None and bool(pairs) and NEVER < pairs[-1] < FOREVER
                found.append(pairs[-1] - (keep_ms or 0) if known else NEVER)
        return NEVER if plan.moves_times(arc) else min(found)

    def rises(self, task: str, *, since: int, upto: int, from_ms: int) -> list[tuple[int, int]]:
        """Return (epoch, watermark) wherever the watermark rises above `from_ms`."""
        sources = self.plan.sources_behind(task.rpartition(".")[0])
        tasks = [task for source in sources for task in self.tasks(f"{INGEST}{source}")]
        events = sorted(
            (epoch, number, watermark)
            for number, other in enumerate(tasks)
            for epoch, watermark in self.of(other).watermarks
            if epoch <= upto
        )
        now = [NEVER] * len(tasks)
        found: list[tuple[int, int]] = []
        highest = from_ms
        for place, (epoch, number, watermark) in enumerate(events):
            now[number] = watermark
            last = place + 1 == len(events) or events[place + 1][0] != epoch
            if last and epoch > since and combined(now) > highest:
                highest = combined(now)
                found.append((epoch, highest))
        return found


def believed(revisions: pl.DataFrame, committed: Mapping[str, Mapping[int, int]]) -> pl.DataFrame:
    """Return the revisions that exist.

    Args:
        revisions: With the ``task``, ``attempt`` and ``epoch`` of each.
        committed: By task and attempt, the last epoch that its reports cover.
    """
    if revisions.is_empty():
        return revisions
    writers = revisions.select("task", "attempt").unique()
    last = [committed.get(task, {}).get(attempt, NEVER) for task, attempt in writers.iter_rows()]
    known = writers.with_columns(pl.Series("__last", last, dtype=pl.Int64))
    if len(last) == 1:
        return revisions.filter(pl.col("epoch") <= last[0])
    return (
        revisions.join(known, on=["task", "attempt"], how="left", maintain_order="left")
        .filter(pl.col("epoch") <= pl.col("__last"))
        .drop("__last")
    )


def combined(watermarks: Iterable[int]) -> int:
    """Return the minimum of watermarks, idle ones left out; NEVER if all are idle.

    Example:
        >>> combined([5, IDLE, 3]), combined([IDLE, IDLE]) == NEVER
        (3, True)
    """
    known = [w for w in watermarks if w != IDLE]
    return min(known, default=NEVER)
