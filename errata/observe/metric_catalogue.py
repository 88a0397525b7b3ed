"""The metrics that Errata declares: names, labels and meanings, and their values for Prometheus.

`errata.observe.metrics` computes the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from errata.processors.tasks.shared import BOUNDS_S, Durations

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILIES: dict[str, type[Family]] = {
    COUNTER: CounterMetricFamily,
    GAUGE: GaugeMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
}
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")


@dataclass(frozen=True)
class Metric:
    """A metric, for the process that reports it and for the page that lists it.

    Args:
        name: Its name; the name of a counter ends in ``_total``.
        kind: `COUNTER`, `GAUGE` or `HISTOGRAM`.
        labels: The names of its labels.
        about: What it means, in one line.
        since_start: Whether a counter begins at 0 with the process.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    since_start: bool = False


class Samples(Collector):
    r"""The values of some metrics at one time.

    Example:
        >>> rows = Metric("errata_rows", GAUGE, ("arc",), "Rows.")
        >>> samples = Samples()
        >>> samples.add(rows, 3, 'a"b')
        >>> print(text_of(samples), end="")
        # HELP errata_rows Rows.
        # TYPE errata_rows gauge
        errata_rows{arc="a\"b"} 3.0
    """

    def __init__(self) -> None:
        self._families: dict[Metric, Family] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add the value of a counter or gauge, with the values of its labels in their order."""
        family = self._family(metric, labels)
        assert not isinstance(family, HistogramMetricFamily), metric
        family.add_metric(labels, value)

    def add_durations(self, metric: Metric, durations: Durations, *labels: str) -> None:
        """Add a histogram of seconds."""
        family = self._family(metric, labels)
        assert isinstance(family, HistogramMetricFamily), metric
        counts = accumulate(durations.buckets)
        family.add_metric(labels, [*zip(_BOUNDS, counts, strict=True)], durations.total_s)

    def _family(self, metric: Metric, labels: tuple[str, ...]) -> Family:
        # The library accepts a wrong number of label values without an error.
        assert len(labels) == len(metric.labels), (metric, labels)
        if metric not in self._families:
            family = _FAMILIES[metric.kind](metric.name, metric.about, labels=metric.labels)
            self._families[metric] = family
        return self._families[metric]

    def collect(self) -> Iterable[Family]:
        """Return the values, grouped by metric."""
        return self._families.values()


def text_of(*collectors: Collector) -> str:
    """Return the current values of collectors in Prometheus' text format."""
    page = CollectorRegistry()
    for collector in collectors:
        page.register(collector)
    return generate_latest(page).decode()


_TASK = ("network", "scope", "task")

RECORDS = Metric("errata_records_read_total", COUNTER, _TASK, "Records read of a source's topic.")
INGESTED = Metric(
    "errata_ingested_total",
    COUNTER,
    (*_TASK, "outcome"),
    "Records by outcome: `inserted`, `replaced`, `deleted`; or without effect: `duplicates`, "
    "`unchanged`, `passed` over. All others are dead letters.",
)
LATE = Metric(
    "errata_late_total", COUNTER, _TASK, "Inserts that were older than `lateness` allows."
)
DISAGREED = Metric(
    "errata_disagreed_total",
    COUNTER,
    _TASK,
    "Records whose original differs from what the arc holds; the arc is the truth.",
)
DEAD_LETTERS = Metric(
    "errata_dead_letters_total", COUNTER, (*_TASK, "reason"), "Dead letters, by reason."
)
REVISIONS = Metric(
    "errata_revisions_total",
    COUNTER,
    ("network", "arc", "op"),
    "Revisions committed to an arc, by op: `insert`, `delete`, `replace`.",
    since_start=True,
)
EPOCHS = Metric(
    "errata_epochs_total",
    COUNTER,
    ("network", "scope"),
    "Epochs in which something was written.",
    since_start=True,
)
COMMITS = Metric(
    "errata_commit_seconds",
    HISTOGRAM,
    ("network", "scope"),
    "How long commits to Kafka took.",
    since_start=True,
)
DOUBTFUL = Metric(
    "errata_doubtful_commits_total",
    COUNTER,
    ("network", "scope"),
    "Commits whose outcome is unknown: each begins a new attempt.",
    since_start=True,
)
ATTEMPTS = Metric("errata_attempts_total", COUNTER, _TASK, "Attempts of a task, in all processes.")
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
    "Records of its input after the position that it reported; transaction markers count too.",
)
RESULTS = Metric(
    "errata_results_total",
    COUNTER,
    (*_TASK, "box", "kind"),
    "Results of an aggregate: of windows that `closed`, and those `revised` later.",
)
REPLAYS = Metric(
    "errata_replays_total",
    COUNTER,
    (*_TASK, "box"),
    "Requests of a box for history, alone or shared with other boxes.",
)
REPLAYED = Metric(
    "errata_replayed_tuples_total",
    COUNTER,
    (*_TASK, "box"),
    "Tuples that a box was replayed, or results that it fetched.",
)
KEPT_BACK = Metric(
    "errata_kept_back_total",
    COUNTER,
    (*_TASK, "box"),
    "Revisions that a box with significance= has kept back.",
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
FOREIGN_RECORDS = Metric(
    "errata_foreign_records_total",
    COUNTER,
    _TASK,
    "Records of arcs, exchanges and replies that no process of Errata can have written; they are "
    "passed over.",
)
LIVE = Metric(
    "errata_live_rows", GAUGE, (*_TASK, "box"), "Rows that a box holds in memory: its open windows."
)
INDEX_FULL = Metric(
    "errata_index_full",
    GAUGE,
    _TASK,
    "1 while the disk of a source's index is full and the task reads no input.",
)

_SWEEPER = ("network", "arc", "partition")
ANSWERED = Metric(
    "errata_replays_answered_total",
    COUNTER,
    ("network", "arc"),
    "Replay requests that got a reply.",
    since_start=True,
)
REFUSED = Metric(
    "errata_replays_refused_total",
    COUNTER,
    ("network", "arc"),
    "Replay requests refused since their history is gone: the requesting task is rebuilt.",
    since_start=True,
)
IGNORED = Metric(
    "errata_replays_ignored_total",
    COUNTER,
    ("network", "arc"),
    "Records in the topic of replay requests that no task of the network can have sent.",
    since_start=True,
)
SENT = Metric(
    "errata_answered_tuples_total",
    COUNTER,
    ("network", "arc"),
    "Tuples in replies.",
    since_start=True,
)
COPIED = Metric(
    "errata_sweeper_epoch", GAUGE, _SWEEPER, "The last epoch of which the copy has everything."
)
BYTES = Metric("errata_sweeper_bytes", GAUGE, _SWEEPER, "Size of the copy on disk.")
SEGMENTS = Metric("errata_sweeper_segments", GAUGE, _SWEEPER, "Files of the copy.")
FULL = Metric(
    "errata_sweeper_full",
    GAUGE,
    _SWEEPER,
    "1 while its disk is full and it replies to no request.",
)

INVALID_REPORTS = Metric(
    "errata_disbelieved_reports_total",
    COUNTER,
    ("network",),
    "Reports of any task that this process ignores, since they can't be true; `errata status` "
    "names them.",
    since_start=True,
)
REGISTRY_UP = Metric(
    "errata_schema_registry_up",
    GAUGE,
    ("network",),
    "1 if the schema registry, where one is configured, replied to the last request.",
)
REGISTRY_FAILURES = Metric(
    "errata_schema_registry_failures_total",
    COUNTER,
    ("network",),
    "Requests to which the schema registry gave no reply.",
    since_start=True,
)

TASK_METRICS = (
    RECORDS, INGESTED, LATE, DISAGREED, DEAD_LETTERS, REVISIONS, EPOCHS, COMMITS, DOUBTFUL,
    ATTEMPTS, WORKING, EPOCH, FRONTIER_LAG, WATERMARK_LAG, INPUT_LAG, RESULTS, REPLAYS, REPLAYED,
    KEPT_BACK, FALLBACKS, REBUILDS, FOREIGN_RECORDS, LIVE, INDEX_FULL,
)  # fmt: skip
SWEEPER_METRICS = (ANSWERED, REFUSED, IGNORED, SENT, COPIED, BYTES, SEGMENTS, FULL)
SHARED_METRICS = (INVALID_REPORTS, REGISTRY_UP, REGISTRY_FAILURES)
