"""Tasks whose reports are invalid, or that don't report although input waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from errata.observe.frontier_holders import STALE_MS
from errata.processors.reports.progress_view import View

NAMED_MS = 10_000
"""An invalid report is listed for this time, and until its task sends a valid one."""


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a task's reports.

    Args:
        task: The task, as the key of its report names it.
        reason: What is wrong.
        since_ms: When the report was written, or when the task last reported; None if never.
    """

    task: str
    reason: str
    since_ms: int | None


def complaints(view: View, silent: Mapping[str, int | None], *, now_ms: int) -> list[Complaint]:
    """Return what is wrong with the reports of tasks.

    Args:
        view: The reports that have been read.
        silent: Tasks that hold themselves back, and when each last reported.
        now_ms: The current time.
    """
    found = [
        Complaint(task, f"its report is not believed: {invalid.reason}", invalid.time_ms)
        for task, invalid in sorted(view.invalid.items())
        if now_ms - invalid.time_ms < NAMED_MS
        or (task in view.ignored and view.validator.knows(task))
    ]
    for task, since_ms in sorted(silent.items()):
        if since_ms is None:
            found.append(Complaint(task, "it has something to do and has never reported", None))
        elif now_ms - since_ms > STALE_MS:
            told = f"it has something to do and has not reported for {now_ms - since_ms} ms"
            found.append(Complaint(task, told, since_ms))
    return found
