"""Tasks that tell what is not believed, or nothing although something waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from errata.holds import STALE_MS
from processors.view import View

FORGOTTEN_MS = 60_000
"""So long a report is complained of that is of no task of the plan: no better one will follow."""


@dataclass(frozen=True)
class Complaint:
    """What is wrong with what a task reports.

    Args:
        task: The task, as the key of its report names it.
        reason: What is wrong.
        since_ms: When it was written, or when the task last reported; None if it never has.
    """

    task: str
    reason: str
    since_ms: int | None


def complaints(
    view: View, silent: Mapping[str, int | None], *, written_ms: Mapping[str, int], now_ms: int
) -> list[Complaint]:
    """Return what is wrong with what tasks report.

    Args:
        view: What has been read of reports.
        silent: Tasks that hold themselves back, and when each last reported.
        written_ms: When the newest record of each task was written.
        now_ms: The time.
    """
    found = [
        Complaint(task, f"its report is not believed: {disbelief.reason}", written_ms.get(task))
        for task, disbelief in sorted(view.disbelieved.items())
        if view.believable.knows(task) or now_ms - written_ms.get(task, 0) < FORGOTTEN_MS
    ]
    for task, since_ms in sorted(silent.items()):
        if since_ms is None:
            found.append(Complaint(task, "it has something to do and has never reported", None))
        elif now_ms - since_ms > STALE_MS:
            told = f"it has something to do and has not reported for {now_ms - since_ms} ms"
            found.append(Complaint(task, told, since_ms))
    return found
