"""Finds corrections among the revisions of arcs: results that had been final, and are changed.

A result of a window is final once the window has closed. Of arcs without windows each replaced or
deleted tuple counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from errata.client import rows
from errata.client.in_memory import WAYS
from errata.observe.diagnosis import moment
from errata.observe.network_progress import Progress
from errata.processors.boxes.states import END
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.report import NEVER, CountKey, Report
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible

KEPT = 64
"""For how many reports of a task it is remembered what its boxes did."""


@dataclass(frozen=True)
class Correction:
    """A result that was changed after it had been final.

    Args:
        arc: Its arc.
        epoch: The epoch of the revision.
        op: ``insert`` (of a window that had closed without one), ``replace`` or ``delete``.
        before, after: The visible fields, as plain values; None where there is no such side.
        age_ms: How long the window had been closed, in event time; None without windows.
        ways: What its box looked back for, by name (see `WAYS`), for all results of the epochs that
            its task has reported together. Empty if it is not known, or for nothing.
        results: How many results these are.
    """

    arc: str
    epoch: int
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    age_ms: int | None
    ways: Mapping[str, int]
    results: int


class Corrections:
    """Finds corrections, and what they cost.

    Args:
        progress: The reports of the tasks, which the caller reads.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._known: dict[str, Report] = dict(progress.reports)
        self._steps: dict[str, deque[tuple[int, int, dict[CountKey, int]]]] = {}
        """By task: the epochs after the first, up to the second, and what was counted in them."""
        self._passed_ms: dict[str, int] = {}
        """By arc: the watermark after the revisions that were looked at last."""

    def note_reports(self) -> None:
        """Remember what the reports since the last call have counted."""
        for task, report in self.progress.reports.items():
            known = self._known.get(task)
            if known is report:
                continue
            self._known[task] = report
            if known is None or known.attempt != report.attempt:
                continue
            counted = {
                CountKey.parse(text): count - known.counts.get(text, 0)
                for text, count in report.counts.items()
                if count > known.counts.get(text, 0)
            }
            steps = self._steps.setdefault(task, deque(maxlen=KEPT))
            steps.append((known.done, report.done, counted))

    def among(
        self, arc: Arc, revisions: pl.DataFrame, *, most: int
    ) -> tuple[list[Correction], int]:
        """Return the corrections among the next revisions of an arc, and their number.

        Args:
            arc: The arc.
            revisions: Whole epochs of it, in order.
            most: So many are returned at most, the newest.
        """
        plan = self.progress.plan
        line = self.progress.watermarks.line(plan.topology.sources_of[arc.name])
        passed_ms = self._passed_ms.get(arc.name, NEVER)
        now_ms = max(line.at(int(revisions["epoch"].max())), passed_ms)  # type: ignore[arg-type]
        self._passed_ms[arc.name] = now_ms
        is_final, has_windows = revisions["op"] != frames.INSERT, closes(plan, arc.name)
        if has_windows:
            is_final |= (revisions[frames.AFTER + END] <= passed_ms).fill_null(False)
        changed = visible(arc, revisions.filter(is_final))
        found, upto_ms = changed.tail(most), moment(now_ms) if has_windows else None
        tasks, lines = found["task"].to_list(), rows.revisions(arc, found)
        return [
            self._correction(arc.name, line, task, upto_ms)
            for line, task in zip(lines, tasks, strict=True)
        ], changed.height

    def _correction(
        self, arc: str, line: dict[str, Any], task: str, upto_ms: int | None
    ) -> Correction:
        before, after = line.get("before"), line.get("after")
        age_ms = None if upto_ms is None else upto_ms - int((after or before or {})[END])
        counted = self._counted(task, line["epoch"])
        own = {key.what: count for key, count in counted.items() if key.box == arc}
        ways = {what: own[what] for what in WAYS if what in own}
        return Correction(
            arc, line["epoch"], line["op"], before, after, age_ms, ways, own.get("revised", 0)
        )

    def _counted(self, task: str, epoch: int) -> dict[CountKey, int]:
        for after, upto, counted in reversed(self._steps.get(task, ())):
            if after < epoch <= upto:
                return counted
        return {}


def closes(plan: CompiledPlan, arc: str) -> bool:
    """Return whether an arc's tuples are results of windows that become final when they close."""
    box = plan.boxes.get(arc)
    return box is not None and box.emits_on_close and END in plan.topology.arcs[arc].fields
