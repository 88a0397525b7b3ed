"""Commits the open transactions of a process that is asked to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from errata.processors.tasks.task import Task
from errata.run.parts import Actor

DRAIN_S = 4.0
"""How long that may take; the next attempt aborts a commit that hangs."""


def drain(actors: Iterable[Actor], advance: Callable[[Actor], bool]) -> None:
    """Let every task commit its open transaction.

    Args:
        actors: All tasks and sweepers of the process.
        advance: Advances one of them by a step.
    """
    until = monotonic() + DRAIN_S
    for task in [actor for actor in actors if isinstance(actor, Task)]:
        while task.attempt.is_committing and monotonic() < until:
            advance(task)
