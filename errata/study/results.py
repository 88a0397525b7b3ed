"""What the study has found: tables, as text and as Markdown, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM, RESIDENT, UPSTREAM
from errata.render.figures import number
from errata.render.lines import drawn
from errata.study.cases import OVERLAPS, SWEEPS, Case
from errata.study.measure import Measured

COLOURS = {UPSTREAM: "#2a6f97", DOWNSTREAM: "#2f9e44", ADAPTIVE: "#e67700", RESIDENT: "#c92a2a"}


class Table(NamedTuple):
    """A table.

    Args:
        title: What it shows.
        columns: Its columns.
        rows: Its cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(found: Sequence[Measured]) -> list[Table]:
    """Return a table for each question that was measured, and that of the choices."""
    sweeps = dict.fromkeys(each.case.sweep for each in found)
    shown = [_of_sweep(sweep, [m for m in found if m.case.sweep == sweep]) for sweep in sweeps]
    return [*shown, choices(found)]


def _of_sweep(sweep: str, found: Sequence[Measured]) -> Table:
    columns = (
        "window", "overlap", "corrected", "chain", "kept", "mode", "tuples read", "results read",
        "alone", "predicted", "revisions, by depth", "tuples a CPU second", "ms for one",
    )  # fmt: skip
    rows = [
        [
            f"{m.case.window:,}",
            str(m.case.overlap),
            f"{m.case.rate:.2%}",
            str(m.case.depth),
            "all" if m.case.points is None else ", ".join(m.case.points) or "none",
            m.case.mode,
            number(m.a_correction("anchor_tuples")),
            number(m.a_correction("fetched")),
            number(m.alone),
            number(m.predicted),
            ", ".join(number(m.a_correction("revised", arc)) for arc in m.case.arcs()),
            number(round(m.rate, -2)),
            number(m.latency_ms),
        ]
        for m in found
    ]
    return Table(f"{SWEEPS[sweep]}; what one correction costs", columns, rows)


class Choice(NamedTuple):
    """What adaptive boxes have chosen in a case, compared with either mode.

    Args:
        case: The case.
        expected: Tuples and results that a correction was expected to read.
        read: Those that it has read, by mode.
    """

    case: Case
    expected: float
    read: Mapping[str, float]

    @property
    def of_the_better(self) -> float:
        """What adaptive mode has read, as a share of what the better fixed mode has."""
        better = min(self.read[UPSTREAM], self.read[DOWNSTREAM])
        return self.read[ADAPTIVE] / better if better else 1.0


def compared(found: Iterable[Measured]) -> list[Choice]:
    """Return the choices of all cases that were measured in the three modes."""
    cases: dict[Case, dict[str, Measured]] = {}
    for measured in found:
        cases.setdefault(replace(measured.case, mode=""), {})[measured.case.mode] = measured
    return [
        Choice(
            case,
            expected=modes[ADAPTIVE].a_correction("expected"),
            read={mode: each.read for mode, each in modes.items()},
        )
        for case, modes in cases.items()
        if {UPSTREAM, DOWNSTREAM, ADAPTIVE} <= modes.keys()
    ]


def choices(found: Iterable[Measured]) -> Table:
    """Return what adaptive boxes expected, what it was, and what either mode costs."""
    columns = (
        "question", "window", "overlap", "corrected", "chain", "expected", ADAPTIVE, UPSTREAM,
        DOWNSTREAM, "of the better",
    )  # fmt: skip
    rows = [
        [
            case.sweep,
            f"{case.window:,}",
            str(case.overlap),
            f"{case.rate:.2%}",
            str(case.depth),
            number(choice.expected),
            *(number(choice.read[mode]) for mode in (ADAPTIVE, UPSTREAM, DOWNSTREAM)),
            f"{choice.of_the_better:.2f}",
        ]
        for choice in compared(found)
        for case in [choice.case]
    ]
    title = (
        "The choices of adaptive boxes: tuples and results that a correction was expected to read, "
        "and has read in each mode"
    )
    return Table(title, columns, rows)


def markdown(shown: Iterable[Table]) -> str:
    """Return tables as a page."""
    parts = []
    for table in shown:
        lines = [table.columns, ["---"] * len(table.columns), *table.rows]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"## {table.title}\n\n{body}\n")
    return "# Results of the study\n\n" + "\n".join(parts)


def pictures(found: Sequence[Measured]) -> dict[str, str]:
    """Return pictures by name: what was measured in at least two places of an axis."""
    shown = dict[str, str]()

    def add(
        name: str,
        some: Iterable[Measured],
        x: Callable[[Measured], float],
        y: Callable[[Measured], float],
        *,
        title: str,
        across: str,
    ) -> None:
        lines: dict[str, list[tuple[float, float]]] = {}
        for each in some:
            if x(each) > 0 and y(each) > 0:
                lines.setdefault(each.case.mode, []).append((x(each), y(each)))
        lines = {mode: sorted(line) for mode, line in lines.items() if len(line) > 1}
        if lines:
            shown[name] = drawn(lines, COLOURS, title=title, x=across)

    of = {sweep: [m for m in found if m.case.sweep == sweep] for sweep in SWEEPS}
    for overlap in OVERLAPS:
        some = [m for m in of["windows"] if m.case.overlap == overlap]
        a_tuple = f"each tuple in {overlap}" if overlap > 1 else "which do not overlap"
        add(
            f"windows_{overlap}", some, lambda m: m.case.window, lambda m: m.alone,
            title="Tuples and results read for a correction", 
            across=f"tuples in a window, {a_tuple}",
        )  # fmt: skip
    add(
        "latency", [m for m in of["windows"] if m.case.overlap == 1],
        lambda m: m.case.window, lambda m: m.latency_ms,
        title="ms for one correction", across="tuples in a window, which do not overlap",
    )  # fmt: skip
    add(
        "rates", of["rates"], lambda m: m.case.rate * 100, lambda m: m.rate,
        title="Tuples a CPU second", across="% of tuples corrected",
    )  # fmt: skip
    add(
        "chains", of["chains"], lambda m: m.case.depth, lambda m: m.alone,
        title="Tuples and results read for a correction", across="aggregates in a chain",
    )  # fmt: skip
    return shown
