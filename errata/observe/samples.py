"""Metrics as this package declares them, and their values for Prometheus' client library."""

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
