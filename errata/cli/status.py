"""`errata status`: shows every task's frontier, and the task that holds it back, since when."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, TextOption, command, deployed
from errata.cli.output import cell, print_lines, table, wants_text
from errata.client.status_text import as_data, why_held, why_watermark
from errata.client.texts import as_time
from errata.observe.diagnosis import STALE_MS
from errata.observe.network_progress import ArcStatus, NetworkStatus, Progress, TaskStatus, status
from errata.run.stopping import Stop
from errata.topics.registry import Registry, SchemaRegistry

_REFRESH_S = 0.5
_ARC_COLUMNS = ("arc", "frontier", "lag", "watermark", "waits for", "its last report")
_COLUMNS = (
    "task",
    "attempt",
    "done",
    "frontier",
    "lag",
    "watermark",
    "waiting",
    "records",
    "dead letters",
    "late",
    "replays",
    "last report",
)


@command("status", example="errata status tape.py --watch")
def status_(
    net: NetworkArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh twice a second until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
    as_text: TextOption = False,
) -> None:
    """Show how far every task has come, and which task holds which frontier back, since when.

    The frontier is the last epoch that a task can no longer change; its lag is shown as the time
    between epochs. The watermark is event time. A task with work to do that has not reported for
    1.5 seconds is busy, or not running. Invalid reports are ignored, and listed for ten seconds.
    """
    with Stop() as stop, deployed(net) as deployment:
        progress = Progress(deployment.cluster, plan=deployment.plan, believes=True)
        look = partial(_look, progress, deployment.registry)
        if not wants_text(as_json, as_text):
            stop.running = watch
            print_lines([as_data(look())])
            while watch and not stop():
                _wait()
                print_lines([as_data(look())])
            raise typer.Exit(stop.status)
        if not watch:
            Console(soft_wrap=False).print(status_tables(look(), now_ms=_now_ms()))
            return
        stop.running = True
        with Live(auto_refresh=False) as screen:
            while not stop():
                rows = screen.console.height
                screen.update(status_tables(look(), now_ms=_now_ms(), rows=rows), refresh=True)
                _wait()
    raise typer.Exit(stop.status)


def _wait() -> None:
    time.sleep(_REFRESH_S)


def _look(progress: Progress, schemas: Registry) -> NetworkStatus:
    progress.catch_up()
    if isinstance(schemas, SchemaRegistry):
        schemas.read()
    return status(progress, schemas=schemas)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def status_tables(network: NetworkStatus, *, now_ms: int, rows: int | None = None) -> Group:
    """Return tables of a status, and a line for each task that holds the network back.

    Args:
        network: The status.
        now_ms: The time.
        rows: Lines of the screen that it has to fit: what is held back, and what lags most, is
            shown then, with the number of the others. None: all is shown.
    """
    newest = (
        "nothing ingested yet" if network.newest_epoch is None else f"epoch {network.newest_epoch}"
    )
    wrong = [
        Text("wrong: ", style="red").append_text(cell(f"{each.task}: {each.reason}"))
        for each in network.complaints
    ]
    held = [
        Text("held back: ", style="yellow").append_text(cell(f"{task.task}: {why_held(task)}"))
        for task in network.tasks
        if task.held_by is not None and _is_stale(task, now_ms)
    ]
    watermarks = [
        Text("watermark: ", style="yellow").append_text(cell(why_watermark(hold)))
        for hold in network.holds
    ]
    silent = [Text("note: ", style="yellow").append_text(cell(note)) for note in network.silent]
    told = [*wrong, *held, *watermarks, *silent]
    arcs, tasks = list(network.arcs), list(network.tasks)
    if rows is not None:
        told = told[: max(1, rows // 4)]
        left = max(2, rows - len(told) - 2 * _FRAME)
        if len(arcs) + len(tasks) > left:
            arcs = sorted(arcs, key=_urgency, reverse=True)[: max(1, left // 3)]
            tasks = sorted(tasks, key=_urgency, reverse=True)[: max(1, left - len(arcs))]
    more_arcs, more_tasks = len(network.arcs) - len(arcs), len(network.tasks) - len(tasks)
    title = f"{network.network}: {newest}"
    return Group(
        table(
            title, _ARC_COLUMNS, (_arc_row(arc, now_ms) for arc in arcs), caption=_more(more_arcs)
        ),
        table("tasks", _COLUMNS, (_row(task, now_ms) for task in tasks), caption=_more(more_tasks)),
        *told,
    )


_FRAME = 6
"""Lines of a table beside its rows: title, head, borders, caption."""


def _urgency(each: ArcStatus | TaskStatus) -> tuple[bool, int]:
    return each.held_by is not None, each.lag_ms or 0


def _more(count: int) -> str:
    return f"and {count} that lag less" if count else ""


def _is_stale(task: TaskStatus, now_ms: int) -> bool:
    return task.held_since_ms is None or now_ms - task.held_since_ms > STALE_MS


def _arc_row(arc: ArcStatus, now_ms: int) -> tuple[object, ...]:
    return (
        arc.arc,
        arc.frontier,
        "" if arc.lag_ms is None else _seconds(arc.lag_ms),
        as_time(arc.watermark_ms),
        arc.held_by or "",
        "" if arc.held_by is None else _ago(arc.held_since_ms, now_ms),
    )


def _row(task: TaskStatus, now_ms: int) -> tuple[object, ...]:
    return (
        task.task,
        task.attempt,
        task.done,
        task.frontier,
        "" if task.lag_ms is None else _seconds(task.lag_ms),
        "ended" if task.ended else as_time(task.watermark_ms) + (" (idle)" if task.idle else ""),
        task.waiting,
        task.total("read"),
        task.total("dead_letters"),
        task.total("late"),
        task.total("requests"),
        _ago(task.reported_ms, now_ms),
    )


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "never" if time_ms is None else f"{_seconds(now_ms - time_ms)} ago"


def _seconds(ms: int) -> str:
    return f"{max(0, ms) / 1000:.2f} s"
