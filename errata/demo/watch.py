"""Follows the demo's results as they are corrected, and finds the trades that caused it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from errata.client import rows
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.wire.task_id import ScopeId, TaskId
from errata.schemas import revisions as frames
from errata.topics.cluster import Cluster
from errata.topics.registry import SchemaRegistry

TRADES, UPSTREAM, DOWNSTREAM = "trades", "totals_upstream", "totals_downstream"
BARS = "bars"
_GROUP = ("product", "currency")


Value = Decimal | int | float | None


@dataclass(frozen=True)
class Correction:
    """A result that was changed or inserted after its window had closed.

    Args:
        result: The result's group and window.
        before: The emitted result; None if there was none.
        after: The result now; None if it is deleted.
        causes: Op and key of the trades of this epoch that are, or were, in the window.
    """

    result: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    causes: list[tuple[str, str]]

    @property
    def revises_emitted(self) -> bool:
        """Whether an emitted result was changed by a replace or delete."""
        return self.before is not None and any(op != "insert" for op, _ in self.causes)

    def sides(self, name: str) -> tuple[Value, Value]:
        """Return a result field before and after."""
        before, after = self.before or {}, self.after or {}
        return before.get(name), after.get(name)


class Watch:
    """Reads the results of one mode, as any reader would that follows the reports.

    Args:
        cluster: The cluster of the topics.
        plan: The deployed plan.
        results: The arc to watch.
        live: Whether results are emitted before their windows close, and over several epochs; then
            only changes that are not caused by inserts alone are shown.
    """

    def __init__(
        self, cluster: Cluster, plan: CompiledPlan, *, results: str = UPSTREAM, live: bool = False
    ) -> None:
        self.plan, self.results, self.live = plan, results, live
        self.view = View(cluster, plan=plan)
        shared = Shared(cluster, plan, SchemaRegistry(cluster), self.view, 0)
        self.partitions = range(plan.placement.partitions[results])
        self.trades, self.totals = (
            [
                ArcInput(self.view, shared.codec(arc), partition, done=-1, resume=0)
                for partition in self.partitions
            ]
            for arc in (TRADES, results)
        )
        self._closed: dict[int, int] = {}

    def poll(self) -> list[Correction]:
        """Return the corrections that have become complete."""
        self.view.poll()
        complete: list[Correction] = []
        for trades, totals in zip(self.trades, self.totals, strict=True):
            totals.poll()
            trades.poll()
            upto = min(totals.frontier(), trades.frontier())
            if upto > totals.done:
                lines = rows.revisions(self.plan.topology.arcs[self.results], totals.take(upto))
                changed = [line for line in lines if self.live or self._is_correction(line)]
                if changed:
                    causes = trades.take(upto)
                    corrections = [self._correction(line, causes) for line in changed]
                    complete += [c for c in corrections if not self.live or c.revises_emitted]
                totals.drop(upto)
                trades.drop(upto)
        return complete

    def _is_correction(self, line: dict[str, Any]) -> bool:
        """Return whether a revision is of a window that had closed, as far as this reader knows.

        There is one watermark: if an earlier epoch closed a later window, it closed this one, too.
        """
        if line["op"] != "insert":
            return True
        end, epoch = line["after"]["window_end"], line["epoch"]
        late = any(e < epoch and closed >= end for e, closed in self._closed.items())
        if not late:
            self._closed[epoch] = max(end, self._closed.get(epoch, end))
        return late

    def _correction(self, line: dict[str, Any], trades: pl.DataFrame) -> Correction:
        before, after = line.get("before"), line.get("after")
        result = before or line["after"]
        inside: list[pl.Expr] = []
        for side in (frames.BEFORE, frames.AFTER):
            at = pl.col(side + "at")
            inside.append(
                pl.all_horizontal(pl.col(side + name) == result[name] for name in _GROUP)
                & (at >= result["window_start"])
                & (at < result["window_end"])
            )
        epoch = pl.col("epoch")
        then = epoch <= line["epoch"] if self.live else epoch == line["epoch"]
        causes = trades.filter(then & pl.any_horizontal(inside).fill_null(False))
        causes = causes.sort(pl.col("op") == frames.INSERT, maintain_order=True)
        keys = pl.coalesce(frames.AFTER + "key", frames.BEFORE + "key")
        pairs = causes.select("op", keys.alias("key")).iter_rows()
        causing = [(frames.OPS[op], key) for op, key in pairs]
        return Correction(result, before, after, causing)

    def counts(self, among: Callable[[ScopeId], bool] = lambda _: True) -> dict[str, int]:
        """Return the totals of the reports of some scopes' tasks so far."""
        totals: dict[str, int] = {}
        for task, report in self.view.reports.items():
            if among(TaskId.parse(task).scope):
                for name, count in report.counts.items():
                    totals[name] = totals.get(name, 0) + count
        return totals

    def behind(self, epoch: int) -> list[str]:
        """Return the tasks that may still produce epochs up to a given one, and their frontiers."""
        tasks = [task for scope in self.plan.topology.scopes for task in self.view.tasks(scope)]
        held = {task: self.view.frontier(task) for task in tasks}
        return [f"{task} (at {at} of {epoch})" for task, at in held.items() if at < epoch]

    def close(self) -> None:
        """Stop reading."""
        for reader in (*self.trades, *self.totals):
            reader.close()
