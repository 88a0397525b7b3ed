"""The metrics of a process: of its tasks, of its sweepers, and of other tasks' invalid reports.

Counts from the reports of tasks are exactly-once and continue across processes. Totals of
`processors.tasks.shared.Meter` start at 0 with the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import time

from errata.observe import metric_catalogue as catalogue
from errata.observe.diagnosis import moment
from errata.observe.metric_catalogue import Samples
from errata.observe.network_progress import waiting_behind
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import FOREIGN, FOREVER, IDLE, INTERVAL_MS, CountKey
from errata.processors.wire.task_id import TaskId
from errata.sweepers.sweeper import Sweeper
from errata.topics.kafka_reader import KafkaReader

_OUTCOMES = ("inserted", "replaced", "deleted", "duplicates", "unchanged", "passed")
_KINDS = ("closed", "revised")
_BY_BOX = (
    (catalogue.REPLAYS, ("requests", "shared")),
    (catalogue.REPLAYED, ("replayed", "fetched")),
    (catalogue.KEPT_BACK, ("kept_back",)),
    (catalogue.FALLBACKS, ("fallbacks",)),
)


def work(
    shared: Shared, names: Iterable[str], tasks: Iterable[Task], sweepers: Iterable[Sweeper]
) -> Samples:
    """Return the metrics of a process's work.

    Args:
        shared: What its tasks share.
        names: Names of the tasks that it runs.
        tasks: The tasks that run in this process itself, not on Spark.
        sweepers: The sweepers that it runs.
    """
    samples = Samples()
    newest, now_ms = shared.view.newest_epoch(), int(time() * 1000)
    for name in names:
        _add_counts(samples, shared, name)
        _add_progress(samples, shared, name, newest, now_ms)
    for task in tasks:
        _add_state(samples, task)
    _add_meter(samples, shared)
    for sweeper in sweepers:
        _add_copy(samples, sweeper)
    _add_reports_and_registry(samples, shared)
    return samples


def _labels(shared: Shared, task: str) -> tuple[str, str, str]:
    return shared.plan.network, str(TaskId.parse(task).scope), task


def _add_counts(samples: Samples, shared: Shared, task: str) -> None:
    """Add the counts of a task's reports."""
    counts, labels = shared.view.of(task).counts, _labels(shared, task)
    if TaskId.parse(task).scope.is_ingest:
        samples.add(catalogue.RECORDS, counts.get("read", 0), *labels)
        for outcome in _OUTCOMES:
            samples.add(catalogue.INGESTED, counts.get(outcome, 0), *labels, outcome)
        samples.add(catalogue.LATE, counts.get("late", 0), *labels)
        samples.add(catalogue.DISAGREED, counts.get("disagreed", 0), *labels)
    keys = {CountKey.parse(text): count for text, count in counts.items()}
    for key, count in keys.items():
        if key.reason:
            samples.add(catalogue.DEAD_LETTERS, count, *labels, key.reason)
    samples.add(catalogue.REBUILDS, counts.get("rebuilt", 0), *labels)
    samples.add(catalogue.FOREIGN_RECORDS, counts.get(FOREIGN, 0), *labels)
    boxes = dict.fromkeys(key.box for key in keys if key.box)
    for box in boxes:
        if box not in shared.plan.boxes:
            continue
        for kind in _KINDS:
            if (key := CountKey(kind, box)) in keys:
                samples.add(catalogue.RESULTS, keys[key], *labels, box, kind)
        for metric, several in _BY_BOX:
            values = [keys[key] for what in several if (key := CountKey(what, box)) in keys]
            if values:
                samples.add(metric, sum(values), *labels, box)


def _add_progress(samples: Samples, shared: Shared, task: str, newest: int, now_ms: int) -> None:
    """Add how far a task has come."""
    view, labels = shared.view, _labels(shared, task)
    report, frontier = view.of(task), view.frontier(task)
    scope = labels[1]
    samples.add(catalogue.ATTEMPTS, report.attempt, *labels)
    if report.done >= 0:
        samples.add(catalogue.EPOCH, report.done, *labels)
    if frontier >= 0:
        lag_ms = max(0, newest - frontier) * INTERVAL_MS
        samples.add(catalogue.FRONTIER_LAG, lag_ms / 1000, *labels)
    watermark = moment(report.watermark)
    if scope in view.plan.topology.scopes:
        watermark = moment(view.watermark(task, upto=frontier))
        samples.add(catalogue.INPUT_LAG, waiting_behind(view, task), *labels)
    elif report.watermarks and report.watermarks[-1][1] in (IDLE, FOREVER):
        watermark = None
    if watermark is not None:
        samples.add(catalogue.WATERMARK_LAG, (now_ms - watermark) / 1000, *labels)


def _add_state(samples: Samples, task: Task) -> None:
    """Add what a task holds in memory, and how much input waits for it."""
    labels = _labels(task.shared, task.name)
    samples.add(catalogue.WORKING, int(task.started), *labels)
    if isinstance(task, IngestTask | OwnerTask) and task.held_tuples is not None:
        samples.add(catalogue.INDEX_FULL, int(bool(task.held_tuples.full)), *labels)
    if isinstance(task, IngestTask) and isinstance(task.reader, KafkaReader):
        end = task.reader.known_end(task.place)
        if end is not None:
            position = task.report.resume.get(task.place, 0)
            samples.add(catalogue.INPUT_LAG, max(0, end - position), *labels)
    if isinstance(task, ScopeTask) and task.started:
        for box, live in task.memory.live.items():
            samples.add(catalogue.LIVE, live.height, *labels, box)


def _add_meter(samples: Samples, shared: Shared) -> None:
    """Add what the process has counted."""
    meter, network = shared.meter, shared.plan.network
    for (arc, op), count in tuple(meter.revisions.items()):
        samples.add(catalogue.REVISIONS, count, network, arc, op)
    for scope, count in tuple(meter.epochs.items()):
        samples.add(catalogue.EPOCHS, count, network, scope)
    for scope, durations in tuple(meter.commits.items()):
        samples.add_durations(catalogue.COMMITS, durations, network, scope)
    for scope, count in tuple(meter.doubtful.items()):
        samples.add(catalogue.DOUBTFUL, count, network, scope)
    for metric, counts in (
        (catalogue.ANSWERED, meter.answered),
        (catalogue.REFUSED, meter.refused),
        (catalogue.IGNORED, meter.ignored),
        (catalogue.SENT, meter.tuples),
    ):
        for arc, count in counts.items():
            samples.add(metric, count, network, arc)


def _add_copy(samples: Samples, sweeper: Sweeper) -> None:
    """Add the metrics of a sweeper's copy."""
    labels = sweeper.shared.plan.network, sweeper.arc.name, str(sweeper.partition)
    files = list(sweeper.folder.glob("segment-*.arrow"))
    if sweeper.store.upto >= 0:
        samples.add(catalogue.COPIED, sweeper.store.upto, *labels)
    samples.add(catalogue.BYTES, sum(file.stat().st_size for file in files), *labels)
    samples.add(catalogue.SEGMENTS, len(files), *labels)
    samples.add(catalogue.FULL, int(bool(sweeper.full)), *labels)


def _add_reports_and_registry(samples: Samples, shared: Shared) -> None:
    """Add invalid reports of other tasks, and the state of the schema registry."""
    samples.add(catalogue.INVALID_REPORTS, shared.view.invalid_count, shared.plan.network)
    outage = getattr(shared.registry, "outage", None)
    if outage is not None:
        samples.add(catalogue.REGISTRY_UP, int(not outage.last_error), shared.plan.network)
        samples.add(catalogue.REGISTRY_FAILURES, outage.failure_count, shared.plan.network)
