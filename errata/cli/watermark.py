"""`errata watermark`: prints the watermarks of sources; puts back one that has run ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from time import monotonic, sleep
from typing import Annotated, Any

import polars as pl
import typer

from errata.cli.app import (
    JsonOption,
    NetworkArgument,
    command,
    deployed,
    moment_ms,
    source_names,
)
from errata.cli.output import for_people, print_lines, print_table
from errata.client.dead_letters import committed_from
from errata.client.texts import as_time
from errata.deploy.deployment import DeployedNetwork
from errata.observe.diagnosis import last_pair, moment
from errata.observe.network_progress import current
from errata.processors.envelopes.batch import ROW
from errata.processors.ingest.intake import KEY, Intake
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import put_back
from errata.processors.plan.topology import Scope, Source, ingest_scope, owning_scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks import rebuild
from errata.processors.wire import plan_records
from errata.processors.wire.dead_letter import TOO_OLD, UNKNOWN_IDENTITY, DeadLetter
from errata.processors.wire.plan_records import WatermarkRecord
from errata.processors.wire.report import FOREVER, IDLE, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.cluster import TopicPartition

LIMIT_S, _PAUSE_S = 60.0, 0.02
"""How long the tasks of a source may take to put their watermarks back."""
RECORDS_A_COMMIT = 10_000


class PutBackError(ErrataError):
    """A watermark can't be put back."""


@command("watermark", example="errata watermark tape.py trades --restore 2026-07-15T09:30:00Z")
def watermark(
    net: NetworkArgument,
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="The source.", autocompletion=source_names),
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Put watermarks of the source that have run ahead of the clock back to this time.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the watermarks of sources by partition, or put back one that has run ahead.

    A record dated far ahead moves the watermark of its partition there: windows close early, and
    later records count as older than keep. With --restore the ingest tasks put the watermark back
    in their next epoch, while the network runs. Windows that end after TIME open again: results
    that had come early are deleted, and come again when the windows close.

    Then the command sends again what was refused as older than keep and would be accepted now. It
    does so once: if it was interrupted, run it again. The record that was wrong stays a tuple, at
    its event time; correct or delete it as any other.
    """
    if restore is None:
        _print(net, source, as_json=as_json)
        return
    if source is None:
        raise typer.BadParameter("needs a SOURCE", param_hint="--restore")
    time_ms = moment_ms(restore, hint="--restore")
    with deployed(net) as deployment:
        topology = deployment.plan.topology
        name = deployment.require_own_source(source)
        view = current(deployment.cluster, deployment.plan)
        try:
            partitions = _restore(deployment, view, name, time_ms)
            sent = send_again(deployment, view, topology.sources[name])
        finally:
            view.close()
    if as_json:
        epochs = {str(partition): epoch for partition, epoch in partitions.items()}
        print_lines([{"source": name, "time_ms": time_ms, "epochs": epochs, "sent": sent}])
        return
    where = ", ".join(f"{p} (epoch {epoch})" for p, epoch in partitions.items())
    done = (
        f"is back at {as_time(time_ms)} in partitions {where}" if where else "was put back before"
    )
    typer.echo(f"the watermark of source {name!r} {done}; {sent} refused records sent again")


def _print(net: str, source: str | None, *, as_json: bool) -> None:
    with deployed(net) as deployment:
        sources = deployment.plan.topology.sources
        if source is not None:
            sources = {source: sources[deployment.require_known("source", source, sources)]}
        view = current(deployment.cluster, deployment.plan)
        view.close()
        rows = [_row(view, name, task) for name in sources for task in _tasks(view, name)]
    if as_json or not for_people():
        print_lines(rows)
        return
    print_table(
        f"watermarks of {deployment.plan.network}",
        ["source", "partition", "watermark", "before it ran ahead", "state"],
        (
            (
                row["source"],
                row["partition"],
                as_time(row["watermark_ms"]),
                as_time(row["trusted_ms"]) if row["ahead"] else "",
                row["state"],
            )
            for row in rows
        ),
    )


def _tasks(view: View, source: str) -> Sequence[str]:
    return view.tasks(ingest_scope(source))


def _row(view: View, source: str, task: str) -> dict[str, Any]:
    report, (_, last) = view.of(task), last_pair(view, task)
    is_ahead = report.believed is not None
    state = {IDLE: "idle", FOREVER: "ended"}.get(last, "ahead of the clock" if is_ahead else "")
    return {
        "source": source,
        "partition": TaskId.parse(task).partition,
        "watermark_ms": moment(report.watermark),
        "trusted_ms": moment(report.trusted_ms),
        "ahead": is_ahead,
        "state": state,
        "put_back_in_epoch": None if report.lowered < 0 else report.lowered,
    }


# -------------------------------------------------------------------------------- put back


def _restore(deployment: DeployedNetwork, view: View, source: str, time_ms: int) -> dict[int, int]:
    """Put the watermark of a source back; return the epoch by partition, {} if it had been."""
    ahead = {t: r for t in _tasks(view, source) if (r := view.of(t)).believed is not None}
    known = view.put_back.get(source)
    if not ahead and known is not None and known.time_ms == time_ms:
        return {}
    require_possible(deployment, view, source)
    _require_time(source, ahead, time_ms)
    resent = 0 if known is None else known.resent
    put_back(deployment.cluster, deployment.plan, source, time_ms=time_ms, resent=resent)
    deadline = monotonic() + LIMIT_S
    while waiting := [t for t, before in ahead.items() if view.of(t).lowered <= before.lowered]:
        if monotonic() > deadline:
            raise PutBackError(
                f"{', '.join(waiting)} did not put the watermark back within {LIMIT_S:g} s: is it "
                "running? Start it, and run this command again with the same time"
            )
        sleep(_PAUSE_S)
        view.poll()
    view.catch_up()  # with the record of the plan topic that was just written
    return {TaskId.parse(task).partition: view.of(task).lowered for task in ahead}


def _require_time(source: str, ahead: Mapping[str, Report], time_ms: int) -> None:
    """Check a time against the watermarks that have run ahead.

    Raises:
        PutBackError: If none has, or the time is not between them and what they were before.
    """
    if not ahead:
        raise PutBackError(
            f"no watermark of source {source!r} is ahead of the clock by more than an hour; others "
            "can't be put back, since older tuples may be forgotten"
        )
    before_ms = max(report.trusted_ms for report in ahead.values())
    latest_ms = min(time.time_ns() // 1_000_000, *(r.watermark - 1 for r in ahead.values()))
    if not before_ms < time_ms <= latest_ms:
        raise PutBackError(
            f"the watermark of source {source!r} can't be put back to {as_time(time_ms)}: it needs "
            f"a time after {as_time(moment(before_ms))}, from which on all that may be revised is "
            f"kept, and at most {as_time(latest_ms)}"
        )


def require_possible(deployment: DeployedNetwork, view: View, source: str) -> None:
    """Check that the tasks behind a source can be rebuilt at a lower watermark.

    Raises:
        PutBackError: If the source has ended or keeps no history, event times are moved behind it,
            or it is not known what was emitted.
        CannotRebuildError: If a task can't be rebuilt.
    """
    if source in view.ends:
        raise PutBackError(_NO.format(source, "it has been declared to end"))
    for scope in rebuilt_scopes(deployment.plan, source):
        if not scope.on_spark:
            _require_known_results(deployment, view, scope)


_NO = "the watermark of source {!r} can't be put back: {}"
_WHY = "its watermark is put back"


def rebuilt_scopes(plan: CompiledPlan, source: str) -> list[Scope]:
    """Return the scopes that are rebuilt when a watermark is put back: those that close windows.

    Raises:
        PutBackError: If the source keeps no history, or event times are moved behind it.
        CannotRebuildError: If one can't be rebuilt, or a job on Spark that would be with it.
    """
    topology = plan.topology
    behind = [s for n, s in topology.scopes.items() if source in topology.sources_behind(n)]
    scopes = [scope for scope in behind if topology.closes_windows(scope.name)]
    if topology.arcs[source].keep_ms is None:
        why = "it has no keep=, so that windows can't be opened again"
        raise PutBackError(_NO.format(source, why))
    if moved := [arc for s in scopes for arc in s.boxes if arc in topology.moved]:
        why = f"a map replaces the event time above {moved[0]!r}, so that its age is not bounded"
        raise PutBackError(_NO.format(source, why))
    for scope in behind:
        reads_on = [arc for arc in scope.inputs if rebuild.passes_on(plan, arc)]
        if scope.on_spark and (scope in scopes or reads_on):
            rebuild.require_history(plan, scope, why=_WHY)
        elif scope in scopes:
            rebuild.check(plan, scope, why=_WHY)
    return scopes


def _require_known_results(deployment: DeployedNetwork, view: View, scope: Scope) -> None:
    """Check that it is known what the tasks of a scope have emitted.

    Raises:
        PutBackError: If a topic may lack some of it by its age: it would be emitted again.
    """
    plan: CompiledPlan = deployment.plan
    for name in scope.outputs:
        if rebuild.passes_on(plan, name):
            continue
        for task in view.tasks(scope.name):
            report = view.of(task)
            place = TopicPartition(plan.deployment.topic(name), TaskId.parse(task).partition)
            if rebuild.may_lack(
                plan.topology.arcs[name],
                first=deployment.cluster.offset_at(place, 0),
                wrote=place in report.ends,
                settled_ms=report.settled_ms,
            ):
                raise PutBackError(
                    f"the watermark can't be put back: {name!r} keeps no history, and its topic "
                    "may lack records by their age, so that what was emitted is not known; give it "
                    "keep="
                )


# -------------------------------------------------------------------------------- send again


def send_again(deployment: DeployedNetwork, view: View, source: Source) -> int:
    """Send the refused records again that are accepted now, each once; return how many.

    How far it has come is written in the transaction that sends them.
    """
    name, cluster, plan = source.arc.name, deployment.cluster, deployment.plan
    record = view.put_back[name]
    intake = Intake(source, deployment.codec(name))
    own = {ingest_scope(name), owning_scope(name)}
    refused = (
        (offset, letter)
        for offset, letter in committed_from(cluster, plan, record.resent)
        if str(TaskId.parse(letter.task).scope) in own
    )
    oldest_ms = {
        TaskId.parse(task).partition: view.of(task).watermark - (source.arc.keep_ms or 0)
        for task in _tasks(view, name)
    }
    sent, known = 0, set[bytes]()
    while part := list(islice(refused, RECORDS_A_COMMIT)):
        letters = accepted(intake, [letter for _, letter in part], oldest_ms, known)
        _send(deployment, letters, replace(record, resent=part[-1][0] + 1))
        sent += len(letters)
    return sent


def _send(
    deployment: DeployedNetwork, letters: Sequence[DeadLetter], progress: WatermarkRecord
) -> None:
    """Send records again, and commit how far that has come, in one transaction."""
    network = deployment.plan.network
    key, value = plan_records.encode(progress)
    transactions = deployment.cluster.transactions(names.putting_back(network, progress.source))
    try:
        transactions.begin()
        if letters:
            transactions.produce(
                letters[0].topic,
                partitions=[letter.partition for letter in letters],
                keys=[letter.key for letter in letters],
                values=[letter.value for letter in letters],
            )
        topic = names.plan_topic(network)
        transactions.produce(topic, partitions=[0], keys=[key], values=[value])
        transactions.flush()
        transactions.commit()
    finally:
        transactions.close()


def accepted(
    intake: Intake, letters: Sequence[DeadLetter], oldest_ms: Mapping[int, int], known: set[bytes]
) -> list[DeadLetter]:
    """Return the records among the dead letters of a source that would be accepted now, in order.

    They are those refused as too old that are not, and what was then refused for want of them.

    Args:
        intake: Decodes the records.
        letters: Dead letters, oldest first.
        oldest_ms: By partition, the oldest event time that is accepted.
        known: Keys of the identities whose records were accepted; added to.
    """
    places = dict[tuple[int, int], DeadLetter]()  # a record may be refused by two owners
    for letter in letters:
        if letter.reason in (TOO_OLD, UNKNOWN_IDENTITY):
            places.setdefault((letter.partition, letter.offset), letter)
    chosen = list(places.values())
    found = intake.decode([x.value for x in chosen], [x.key for x in chosen]).frame
    judged = _judged(intake, chosen, found, oldest_ms)
    return [letter for letter, keys in judged if _is_next(letter, keys, known)]


def _judged(
    intake: Intake,
    letters: Sequence[DeadLetter],
    found: pl.DataFrame,
    oldest_ms: Mapping[int, int],
) -> Iterator[tuple[DeadLetter, list[bytes]]]:
    """Yield the dead letters of young records, each with the keys of its identities."""
    times = [pl.col(side + intake.arc.event_time) for side in (frames.BEFORE, frames.AFTER)]
    rows = found.select(ROW, KEY, pl.min_horizontal(times).alias("at")).group_by(
        ROW, maintain_order=True
    )
    for row, keys, at in rows.agg(KEY, pl.col("at").min()).sort(ROW).iter_rows():
        letter = letters[row]
        if at is None or at >= oldest_ms[letter.partition]:
            yield letter, keys


def _is_next(letter: DeadLetter, keys: Sequence[bytes], known: set[bytes]) -> bool:
    """Whether a young record is accepted after those whose identities are known."""
    if letter.reason == UNKNOWN_IDENTITY:
        return not known.isdisjoint(keys)
    known.update(keys)
    return True
