"""What a process still does when it is told to end: what is in hand is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from errata.processors.tasks.task import Task
from errata.run.parts import Actor

DRAIN_S = 4.0
"""How long that may take; a commit that hangs is left to the next life, which aborts it."""


def drain(actors: Iterable[Actor], advance: Callable[[Actor], bool]) -> None:
    """Let every task commit the transaction that it has open.

    Args:
        actors: All that the process runs.
        advance: Takes a step of one.
    """
    until = monotonic() + DRAIN_S
    for task in [actor for actor in actors if isinstance(actor, Task)]:
        while task.attempt.is_committing and monotonic() < until:
            advance(task)
