"""Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.processors.tasks.meter import BOUNDS_S, Durations

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """A metric.

    Args:
        name: Its name; that of a counter ends in ``_total``.
        kind: `COUNTER`, `GAUGE` or `HISTOGRAM`.
        labels: Their names.
        about: What it tells, in one line.
        since_start: Whether a counter begins at 0 with the process.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    since_start: bool = False


class Exposition:
    r"""The values of some metrics at one moment.

    Example:
        >>> rows = Metric("errata_rows", GAUGE, ("arc",), "Rows.")
        >>> page = Exposition()
        >>> page.add(rows, 3, 'a"b')
        >>> print(page.text(), end="")
        # HELP errata_rows Rows.
        # TYPE errata_rows gauge
        errata_rows{arc="a\"b"} 3
    """

    def __init__(self) -> None:
        self._lines: dict[Metric, list[str]] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Tell the value of a metric under values of its labels, in their order."""
        self._line(metric, "", value, dict(zip(metric.labels, labels, strict=True)))

    def add_durations(self, metric: Metric, found: Durations, *labels: str) -> None:
        """Tell a histogram of seconds."""
        named, count = dict(zip(metric.labels, labels, strict=True)), 0
        for bound, more in zip((*map(str, BOUNDS_S), "+Inf"), found.buckets, strict=True):
            count += more
            self._line(metric, "_bucket", count, {**named, "le": bound})
        self._line(metric, "_sum", found.total_s, named)
        self._line(metric, "_count", count, named)

    def _line(self, metric: Metric, suffix: str, value: float, labels: dict[str, str]) -> None:
        told = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in labels.items())
        shown = f"{{{told}}}" if told else ""
        number = repr(round(value, 9)) if isinstance(value, float) else str(int(value))
        self._lines.setdefault(metric, []).append(f"{metric.name}{suffix}{shown} {number}")

    def text(self) -> str:
        """Return all of it, a metric's lines together."""
        found: list[str] = []
        for metric, lines in self._lines.items():
            found += [
                f"# HELP {metric.name} {_help(metric.about)}",
                f"# TYPE {metric.name} {metric.kind}",
                *lines,
            ]
        return "".join(f"{line}\n" for line in found)


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def listed(metrics: Sequence[Metric]) -> str:
    """Return a table of metrics in Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        kind = f"{metric.kind} *" if metric.since_start else metric.kind
        lines.append(f"| `{metric.name}` | {kind} | {labels} | {metric.about} |")
    return "\n".join(lines) + "\n"
