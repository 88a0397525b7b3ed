"""Shows how far long work has come: bars on a terminal, a line each ten seconds elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from errata.run.exit_status import complain

EVERY_S = 10.0
"""Off a terminal a line is printed after each such time."""


class Bars(Progress):
    """Bars on a terminal; elsewhere a line on standard error after each `EVERY_S`."""

    def __init__(self) -> None:
        self._told_s, self._is_shown = monotonic(), sys.stderr.isatty()
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not self._is_shown,
        )

    def update(self, task_id: TaskID, **given: Any) -> None:
        """Note how far a task has come."""
        super().update(task_id, **given)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Note a step of a task."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        if self._is_shown or monotonic() < self._told_s + EVERY_S:
            return
        self._told_s = monotonic()
        task = self.tasks[self.task_ids.index(task_id)]
        share = f"{task.completed / task.total:.0%}" if task.total else f"{task.completed:,.0f}"
        complain(f"{task.description}: {share} after {task.elapsed or 0:.0f} s")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tell what takes long, and for how long it has, while the body runs.

    Args:
        what: As "filling the history of bars".
    """
    began_s, ended = monotonic(), threading.Event()
    if sys.stderr.isatty():
        with Console(stderr=True).status(what):
            yield
        return

    def tell() -> None:
        while not ended.wait(EVERY_S):
            complain(f"{what}: {monotonic() - began_s:.0f} s so far")

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
