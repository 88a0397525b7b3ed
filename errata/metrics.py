"""The metrics of a process's work: of its tasks, of its sweepers, and of what it hears of others.

What tasks count in their reports is exactly once and goes on where the last process ended; totals
of `processors.meter` begin at 0 with the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import time

from errata.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Metric
from errata.holds import moment
from errata.progress import newest_epoch, waiting_behind
from processors.ingest_task import IngestTask
from processors.report import FOREVER, IDLE
from processors.scope_task import ScopeTask
from processors.scopes import INGEST
from processors.task import INTERVAL_MS, Shared, Task
from sweepers.sweeper import Sweeper
from topics.reading import KafkaReader

_TASK = ("network", "scope", "task")

RECORDS = Metric("errata_records_read_total", COUNTER, _TASK, "Records read of a source's topic.")
INGESTED = Metric(
    "errata_ingested_total",
    COUNTER,
    (*_TASK, "outcome"),
    "What became of records: `inserted`, `replaced`, `deleted`; or nothing, since they were "
    "`duplicates`, `unchanged` or `passed` over. Others are dead letters.",
)
LATE = Metric(
    "errata_late_total", COUNTER, _TASK, "Inserts that were older than `lateness` allows."
)
DISAGREED = Metric(
    "errata_disagreed_total",
    COUNTER,
    _TASK,
    "Records that told another original than the arc holds; the arc is the truth.",
)
LETTERS = Metric(
    "errata_dead_letters_total", COUNTER, (*_TASK, "reason"), "Dead letters, by what was wrong."
)
REVISIONS = Metric(
    "errata_revisions_total",
    COUNTER,
    ("network", "arc", "op"),
    "Revisions committed to an arc, by op: `insert`, `delete`, `replace`.",
)
EPOCHS = Metric(
    "errata_epochs_total", COUNTER, ("network", "scope"), "Epochs in which something was written."
)
COMMITS = Metric(
    "errata_commit_seconds", HISTOGRAM, ("network", "scope"), "How long commits to Kafka took."
)
DOUBTFUL = Metric(
    "errata_doubtful_commits_total",
    COUNTER,
    ("network", "scope"),
    "Commits whose outcome was not known: each begins a new attempt.",
)
ATTEMPTS = Metric("errata_attempts_total", COUNTER, _TASK, "Lives of a task, in all processes.")
WORKING = Metric("errata_task_working", GAUGE, _TASK, "1 once the task works, 0 while it starts.")
EPOCH = Metric("errata_epoch", GAUGE, _TASK, "The last epoch that the task has reported.")
FRONTIER_LAG = Metric(
    "errata_frontier_lag_seconds",
    GAUGE,
    _TASK,
    "How far the task is behind the newest epoch of ingest, in the time between epochs.",
)
WATERMARK_LAG = Metric(
    "errata_watermark_lag_seconds",
    GAUGE,
    _TASK,
    "How far its watermark, event time, is behind the clock; absent if it has none, is idle, "
    "or has ended.",
)
INPUT_LAG = Metric(
    "errata_input_lag_records",
    GAUGE,
    _TASK,
    "Records of its input behind the position that it reported; marks of transactions count too.",
)
RESULTS = Metric(
    "errata_results_total",
    COUNTER,
    (*_TASK, "box", "kind"),
    "Results of an aggregate: of windows that `closed`, and those `revised` later.",
)
REPLAYS = Metric(
    "errata_replays_total", COUNTER, (*_TASK, "box"), "Epochs in which a box asked for history."
)
REPLAYED = Metric(
    "errata_replayed_tuples_total",
    COUNTER,
    (*_TASK, "box"),
    "Tuples that a box was replayed, or results that it fetched.",
)
FALLBACKS = Metric(
    "errata_fallbacks_total",
    COUNTER,
    (*_TASK, "box"),
    "Changes that downstream processing could not make: replayed upstream.",
)
REBUILDS = Metric(
    "errata_rebuilds_total", COUNTER, _TASK, "How often the task was rebuilt at the frontier."
)
LIVE = Metric(
    "errata_live_rows", GAUGE, (*_TASK, "box"), "Rows that a box holds in memory: its open windows."
)

_SWEEPER = ("network", "arc", "partition")
ANSWERED = Metric(
    "errata_replays_answered_total", COUNTER, ("network", "arc"), "Questions that got an answer."
)
REFUSED = Metric(
    "errata_replays_refused_total",
    COUNTER,
    ("network", "arc"),
    "Questions refused since their history is gone: whoever asked is rebuilt.",
)
SENT = Metric("errata_answered_tuples_total", COUNTER, ("network", "arc"), "Tuples in answers.")
COPIED = Metric("errata_sweeper_epoch", GAUGE, _SWEEPER, "The last epoch that the copy has whole.")
BYTES = Metric("errata_sweeper_bytes", GAUGE, _SWEEPER, "Size of the copy on disk.")
SEGMENTS = Metric("errata_sweeper_segments", GAUGE, _SWEEPER, "Files of the copy.")
FULL = Metric(
    "errata_sweeper_full", GAUGE, _SWEEPER, "1 while its disk is full and it answers nobody."
)

LIES = Metric(
    "errata_disbelieved_reports_total",
    COUNTER,
    ("network",),
    "Reports of any task that this process did not believe; `errata status` names them.",
)
REGISTRY_UP = Metric(
    "errata_schema_registry_up",
    GAUGE,
    ("network",),
    "1 if the schema registry, where one is configured, gave an answer when last asked.",
)
REGISTRY_FAILURES = Metric(
    "errata_schema_registry_failures_total",
    COUNTER,
    ("network",),
    "Questions that the schema registry gave no answer to.",
)

_OUTCOMES = ("inserted", "replaced", "deleted", "duplicates", "unchanged", "passed")
_KINDS = ("closed", "revised")
_REASON = "refused."
_BY_BOX = (
    (REPLAYS, ("requests",)),
    (REPLAYED, ("replayed", "fetched")),
    (FALLBACKS, ("fallbacks",)),
)
TASK_METRICS = (
    RECORDS, INGESTED, LATE, DISAGREED, LETTERS, REVISIONS, EPOCHS, COMMITS, DOUBTFUL, ATTEMPTS,
    WORKING, EPOCH, FRONTIER_LAG, WATERMARK_LAG, INPUT_LAG, RESULTS, REPLAYS, REPLAYED, FALLBACKS,
    REBUILDS, LIVE,
)  # fmt: skip
SWEEPER_METRICS = (ANSWERED, REFUSED, SENT, COPIED, BYTES, SEGMENTS, FULL)
SHARED_METRICS = (LIES, REGISTRY_UP, REGISTRY_FAILURES)


def work(
    shared: Shared, names: Iterable[str], tasks: Iterable[Task], sweepers: Iterable[Sweeper]
) -> str:
    """Return the metrics of what a process does.

    Args:
        shared: What its tasks share.
        names: Names of the tasks that it runs.
        tasks: Those of them that are in this process itself, not in Spark's.
        sweepers: The sweepers that it runs.
    """
    page = Exposition()
    newest, now_ms = newest_epoch(shared.view), int(time() * 1000)
    for name in names:
        _counted(page, shared, name)
        _told(page, shared, name, newest, now_ms)
    for task in tasks:
        _held(page, task)
    _metered(page, shared)
    for sweeper in sweepers:
        _copied(page, sweeper)
    _heard(page, shared)
    return page.text()


def _labels(shared: Shared, task: str) -> tuple[str, str, str]:
    return shared.plan.network, task.rpartition(".")[0], task


def _counted(page: Exposition, shared: Shared, task: str) -> None:
    """Tell what a task counts in its reports."""
    counts, labels = shared.view.of(task).counts, _labels(shared, task)
    if task.startswith(INGEST):
        page.add(RECORDS, counts.get("read", 0), *labels)
        for outcome in _OUTCOMES:
            page.add(INGESTED, counts.get(outcome, 0), *labels, outcome)
        page.add(LATE, counts.get("late", 0), *labels)
        page.add(DISAGREED, counts.get("disagreed", 0), *labels)
    for key, count in counts.items():
        if key.startswith(_REASON):
            page.add(LETTERS, count, *labels, key.removeprefix(_REASON))
    page.add(REBUILDS, counts.get("rebuilt", 0), *labels)
    boxes = dict.fromkeys(key.rpartition(".")[0] for key in counts if "." in key)
    for box in boxes:
        if box not in shared.plan.boxes:
            continue
        for kind in _KINDS:
            if f"{box}.{kind}" in counts:
                page.add(RESULTS, counts[f"{box}.{kind}"], *labels, box, kind)
        for metric, keys in _BY_BOX:
            if any(f"{box}.{key}" in counts for key in keys):
                total = sum(counts.get(f"{box}.{key}", 0) for key in keys)
                page.add(metric, total, *labels, box)


def _told(page: Exposition, shared: Shared, task: str, newest: int, now_ms: int) -> None:
    """Tell how far a task is."""
    view, labels = shared.view, _labels(shared, task)
    report, frontier = view.of(task), view.frontier(task)
    scope = labels[1]
    page.add(ATTEMPTS, report.attempt, *labels)
    if report.done >= 0:
        page.add(EPOCH, report.done, *labels)
    if frontier >= 0:
        lag_ms = max(0, newest - frontier) * INTERVAL_MS
        page.add(FRONTIER_LAG, lag_ms / 1000, *labels)
    watermark = moment(report.watermark)
    if scope in view.plan.scopes:
        watermark = moment(view.watermark(task, upto=frontier))
        page.add(INPUT_LAG, waiting_behind(view, task), *labels)
    elif report.watermarks and report.watermarks[-1][1] in (IDLE, FOREVER):
        watermark = None
    if watermark is not None:
        page.add(WATERMARK_LAG, (now_ms - watermark) / 1000, *labels)


def _held(page: Exposition, task: Task) -> None:
    """Tell what a task has in memory, and what waits for it."""
    labels = _labels(task.shared, task.name)
    page.add(WORKING, int(task.started), *labels)
    if isinstance(task, IngestTask) and isinstance(task.reader, KafkaReader):
        end = task.reader.known_end(task.place)
        if end is not None:
            at = task.report.resume.get(task.place, 0)
            page.add(INPUT_LAG, max(0, end - at), *labels)
    if isinstance(task, ScopeTask) and task.started:
        for box, live in task.memory.live.items():
            page.add(LIVE, live.height, *labels, box)


def _metered(page: Exposition, shared: Shared) -> None:
    """Tell what the process has counted."""
    meter, network = shared.meter, shared.plan.network
    for (arc, op), count in tuple(meter.revisions.items()):
        page.add(REVISIONS, count, network, arc, op)
    for scope, count in tuple(meter.epochs.items()):
        page.add(EPOCHS, count, network, scope)
    for scope, durations in tuple(meter.commits.items()):
        page.add_durations(COMMITS, durations, network, scope)
    for scope, count in tuple(meter.doubtful.items()):
        page.add(DOUBTFUL, count, network, scope)
    for metric, counts in (
        (ANSWERED, meter.answered),
        (REFUSED, meter.refused),
        (SENT, meter.tuples),
    ):
        for arc, count in counts.items():
            page.add(metric, count, network, arc)


def _copied(page: Exposition, sweeper: Sweeper) -> None:
    """Tell of a sweeper's copy."""
    labels = sweeper.shared.plan.network, sweeper.arc.name, str(sweeper.partition)
    files = list(sweeper.folder.glob("segment-*.arrow"))
    if sweeper.store.upto >= 0:
        page.add(COPIED, sweeper.store.upto, *labels)
    page.add(BYTES, sum(file.stat().st_size for file in files), *labels)
    page.add(SEGMENTS, len(files), *labels)
    page.add(FULL, int(bool(sweeper.full)), *labels)


def _heard(page: Exposition, shared: Shared) -> None:
    """Tell of others."""
    page.add(LIES, shared.view.lie_count, shared.plan.network)
    outage = getattr(shared.registry, "outage", None)
    if outage is not None:
        page.add(REGISTRY_UP, int(not outage.told), shared.plan.network)
        page.add(REGISTRY_FAILURES, outage.failure_count, shared.plan.network)
