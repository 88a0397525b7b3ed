"""The page of all metrics: ``python -m errata.run.metrics_page > docs/metrics.md``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from errata.observe.metric_catalogue import SHARED_METRICS, SWEEPER_METRICS, TASK_METRICS
from errata.observe.process_metrics import LIBRARY_METRICS, PROCESS_METRICS
from errata.observe.samples import Metric
from errata.run.supervisor_port import UP_METRICS

_INTRO = """# Metrics

A process serves `/metrics` in Prometheus' text format at the address that `http.listen` sets
([settings](settings.md)). [Operations](operations.md#what-to-watch) says what to watch. A process
shows the tasks and sweepers that it runs, so all processes together show the whole network, each
task once. They update the values once a second. Labels have as many values as the network has
scopes, tasks, boxes and arcs; the content of a record is never a label.

Tasks keep their counters in their reports, exactly once: such a counter goes on where the last
process ended, whichever process runs the task next. The others, marked *, begin at 0 with the
process.
"""

_GROUPS = (
    ("Tasks", TASK_METRICS),
    ("Sweepers", SWEEPER_METRICS),
    ("Every process with a network", SHARED_METRICS),
    ("Every process", PROCESS_METRICS + LIBRARY_METRICS),
    ("`errata up`", UP_METRICS),
)
METRICS: tuple[Metric, ...] = tuple(metric for _, group in _GROUPS for metric in group)
"""Every metric."""


def page() -> str:
    """Return the page in Markdown."""
    return _INTRO + "".join(f"\n## {name}\n\n{_listed(group)}" for name, group in _GROUPS)


def _listed(metrics: Sequence[Metric]) -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        kind = f"{metric.kind} *" if metric.since_start else metric.kind
        lines.append(f"| `{metric.name}` | {kind} | {labels} | {metric.about} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
