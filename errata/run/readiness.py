"""A process's own view of itself: whether it is ready, and its metrics."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from errata.observe import metrics
from errata.observe.samples import Samples
from errata.processors.reports.validation import InvalidReport
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.run.parts import Actor
from errata.run.shared_scope import Share
from errata.sweepers.sweeper import Service, Sweeper

log = logging.getLogger("errata")


class Look:
    """Inspects the tasks and sweepers of a process.

    Args:
        shared: What they share.
        shares: The scopes that the process shares with other processes.
    """

    def __init__(self, shared: Shared, shares: Sequence[Share]) -> None:
        self.shared, self.shares = shared, shares
        self._reports_end: int | None = None
        self._named: dict[str, InvalidReport] = {}

    def __call__(self, actors: Collection[Actor]) -> tuple[list[str], Samples]:
        """Return why the process is not ready, and its current metrics."""
        tasks = [actor for actor in actors if isinstance(actor, Task)]
        sweepers = [sweeper for actor in actors for sweeper in _sweepers(actor)]
        self._name_lies()
        told = metrics.work(self.shared, [task.name for task in tasks], tasks, sweepers)
        return list(self._waits(tasks, sweepers)), told

    def _name_lies(self) -> None:
        """Log each invalid report once; of one task only the last."""
        for task, invalid in self.shared.view.invalid.items():
            if self._named.get(task) is not invalid:
                self._named[task] = invalid
                log.warning("the report of %s is not believed: %s", task, invalid.reason)

    def _waits(self, tasks: Collection[Task], sweepers: Collection[Sweeper]) -> Iterator[str]:
        for share in self.shares:
            if not share.is_member:
                yield f"scope {share.scope}: the group has not said yet which partitions are its"
        for task in tasks:
            if not task.started:
                yield f"task {task.name} is starting"
            elif task.waits:
                yield f"task {task.name} waits: {task.waits}"
        if self._reports_end is None:
            self._reports_end = self.shared.cluster.end(self.shared.view.source)
        knows = self.shared.view.has_read_to(self._reports_end)
        for sweeper in sweepers:
            if sweeper.full:
                yield f"{sweeper.name} answers nobody: {sweeper.full}"
            elif not (knows and sweeper.has_caught_up()):
                yield f"{sweeper.name} has read its arc up to epoch {sweeper.store.upto} so far"


def _sweepers(actor: Actor) -> list[Sweeper]:
    if isinstance(actor, Service):
        return [actor.sweeper]
    return [actor] if isinstance(actor, Sweeper) else []
