"""Tells when the tasks of a network have begun their work."""

from __future__ import annotations

from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.topics.cluster import Cluster


class Readiness:
    """Follows the reports of tasks until each has begun a new attempt.

    Args:
        cluster: The cluster of the network.
        plan: Its plan.
    """

    def __init__(self, cluster: Cluster, plan: CompiledPlan) -> None:
        self._view = View(cluster, plan=plan)
        self._view.catch_up()
        scopes = plan.topology.all_scopes
        self._before = {
            task: self._view.of(task).attempt
            for scope in scopes
            for task in self._view.tasks(scope)
        }
        self.tasks = len(self._before)

    def waiting(self) -> list[str]:
        """Return the tasks that have not begun since this was made."""
        self._view.poll()
        return [
            task for task, attempt in self._before.items() if self._view.of(task).attempt <= attempt
        ]

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        self._view.close()
