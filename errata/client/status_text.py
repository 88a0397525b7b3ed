"""The status of a network as plain data, and its reasons as sentences."""

from __future__ import annotations

from typing import Any

from errata.client.texts import as_time
from errata.observe.diagnosis import Hold
from errata.observe.network_progress import NetworkStatus, TaskStatus
from errata.processors.tasks.reading_again import share_text
from errata.processors.wire.task_id import TaskId


def as_data(network: NetworkStatus) -> dict[str, Any]:
    """Return a status as plain data, with the reason why each frontier is held back."""
    return {
        **vars(network),
        "tasks": [{**vars(task), "held": why_held(task) or None} for task in network.tasks],
        "arcs": [{**vars(arc)} for arc in network.arcs],
        "complaints": [{**vars(each)} for each in network.complaints],
        "holds": [{**vars(hold), "told": why_watermark(hold)} for hold in network.holds],
    }


def why_held(task: TaskStatus) -> str:
    """Return who holds a task's frontier back, since when, and what to do; "" if nobody does."""
    if task.held_by is None:
        return ""
    since = "it has never reported"
    if task.held_since_ms is not None:
        since = f"its last report is of {as_time(task.held_since_ms)}"
    if task.held_by != task.task:
        return f"waits for {task.held_by}; {since}"
    if task.read_again is not None:
        read = share_text(task.read_again, task.read_again_of)
        return f"holds itself back: it rebuilds what it keeps, {read} read; {since}"
    scope = TaskId.parse(task.task).scope
    has = f"{task.waiting} records wait for it" if task.waiting else "its input has moved on"
    return f"holds itself back: {has}, {since}; it is busy, or needs `errata run --scope {scope}`"


def why_watermark(hold: Hold) -> str:
    """Return which partition holds a watermark back, since when, and what to do."""
    peers = "have ended" if hold.peers_ms is None else f"are at {as_time(hold.peers_ms)}"
    has = "has never had a record"
    if hold.since_ms is not None:
        has = (
            f"is at {as_time(hold.watermark_ms)} and has had no newer event since "
            f"{as_time(hold.since_ms)}"
        )
    return (
        f"{hold.task} {has}, while its peers {peers}: no window of {hold.source!r} closes beyond; "
        f"set idle_after=, or run `errata end NET {hold.source}`"
    )
