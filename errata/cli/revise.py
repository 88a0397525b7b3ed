"""`errata revise`: sends a revision of a source by hand.

The tuple is on the command line: as JSON, or field by field.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command, deployed, source_names
from errata.cli.output import for_people, print_lines
from errata.cli.tail import revision_line
from errata.client import rows
from errata.client.in_memory import InMemory, ways_text
from errata.client.json_lines import json_line
from errata.client.reading import Content, content_of
from errata.client.sending import Parcel, declared, deliver, source_records
from errata.deploy.deployment import DeployedNetwork
from errata.observe.network_progress import Progress, current
from errata.processors.boxes.matching import with_identities
from errata.processors.ingest.intake import Intake
from errata.processors.plan.topology import Source
from errata.processors.wire.task_id import ScopeId, TaskId
from errata.run.exit_status import complain
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.schemas.partition import partitions
from errata.topics.cluster import TopicPartition

_TEXTS = {"string", "uuid", "bytes", "date", "timestamp-millis", "timestamp-micros"}


class RefusedRevisionError(ErrataError):
    """A revision does not match the content of its source, or is malformed."""


def parse_fields(source: Source, text: str | None, sets: list[str]) -> dict[str, Any]:
    """Return the fields of a command line, as JSON values.

    Args:
        source: The source that has the fields.
        text: A JSON object with some of them.
        sets: ``FIELD=VALUE`` for others; these override the JSON object.

    Raises:
        RefusedRevisionError: If the source has no such field.
    """
    fields: Any = {}
    if text is not None:
        try:
            fields = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"the tuple is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise typer.BadParameter("the tuple needs to be a JSON object, as {...}")
    for part in sets:
        name, equals, value = part.partition("=")
        if not equals:
            raise typer.BadParameter(f"{part!r} needs the form FIELD=VALUE", param_hint="--set")
        fields[name] = _value(_field(source, name), value)
    for name in fields:
        _field(source, name)
    return dict(fields)


def parse_identity(source: Source, fields: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return the identity of a command line, as JSON values.

    Args:
        source: The source that has the identity.
        fields: The fields of the command line.
        keys: The value of the identity, or ``FIELD=VALUE`` for each of its fields.

    Raises:
        RefusedRevisionError: If the identity is incomplete, or the fields contradict it.
    """
    names = source.arc.identity
    identity = {name: fields[name] for name in names if name in fields}
    for part in keys:
        name, equals, value = part.partition("=")
        if not equals or name not in names:
            if len(names) > 1:
                raise typer.BadParameter(
                    f"{part!r} needs the form FIELD=VALUE, with a field of {', '.join(names)}",
                    param_hint="--key",
                )
            name, value = names[0], part
        parsed = _value(_field(source, name), value)
        if name in fields and str(fields[name]) != str(parsed):
            raise RefusedRevisionError(
                f"the tuple {part!r} of source {source.arc.name!r} can't become "
                f"{name}={fields[name]}: a replace keeps the identity; delete it and insert another"
            )
        identity[name] = parsed
    missing = [name for name in names if identity.get(name) is None]
    if missing:
        raise RefusedRevisionError(
            f"a revision of source {source.arc.name!r} needs its identity, "
            f"{', '.join(missing)}: give --key, or the fields in the JSON tuple"
        )
    return identity


def _field(source: Source, name: str) -> FieldType:
    fields = declared(source)
    if name not in fields:
        raise RefusedRevisionError(
            f"source {source.arc.name!r} has no field {name!r}: it has {', '.join(fields)}"
        )
    return fields[name]


def _value(kind: FieldType, text: str) -> Any:
    """Return a value of the command line as a JSON value.

    Example:
        >>> _value(FieldType.parse("decimal(9,2)"), "22.50"), _value(FieldType.parse("string"), "1")
        (Decimal('22.50'), '1')
    """
    if text == "null" and kind.optional:
        return None
    if kind.kind in _TEXTS:
        return int(text) if kind.kind.startswith("timestamp") and text.isdecimal() else text
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text  # ingest checks it, as it checks all input


@command("revise", example="errata revise tape.py trades replace --key T1 --set price=22 --dry-run")
def revise(
    net: NetworkArgument,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="The source to revise.", autocompletion=source_names),
    ],
    op: Annotated[
        str,
        typer.Argument(
            metavar="OP",
            help="insert, replace or delete.",
            autocompletion=lambda: list(frames.OPS),
        ),
    ],
    tuple_: Annotated[
        str | None,
        typer.Argument(metavar="[JSON]", help="The tuple, or some fields of it: a JSON object."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K",
            help="The identity of the tuple: its value, or FIELD=VALUE for each of its fields.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="A field's value. May be repeated."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The partition of the source's topic to send to."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; send nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send a revision of a source to its topic, in the envelope and format that it declares.

    A replace or delete names an existing tuple; a replace keeps fields that are not given. The
    tuple is looked up in the source's arc, and the revision goes to the partition of the topic that
    the tuple came from. A new tuple goes to the partition that Kafka's default partitioner chooses
    for its identity, unless --partition is given. Only --dry-run prints what the revision changes,
    and what each box replays, fetches and keeps back for it: it reads the sources' arcs, computes
    every box, and lets the boxes process the revision, at the current watermark.
    """
    if op not in frames.OPS:
        raise typer.BadParameter(f"{op!r} needs to be one of {', '.join(frames.OPS)}")
    with deployed(net) as deployment:
        kind = deployment.plan.topology.sources[deployment.require_own_source(source)]
        fields = parse_fields(kind, tuple_, set_ or [])
        identity = parse_identity(kind, fields, key or [])
        progress = current(deployment.cluster, deployment.plan)
        intake = _Reader(deployment, kind)
        wanted = intake.identity(identity)
        content = content_of(progress, intake.codec, identities=None if dry_run else wanted)
        revision, last = _revision(intake, content, op, identity | fields, wanted)
        place, why = place_of(deployment, kind, revision, last, partition)
        offset = None
        if not dry_run:
            now_ms = time.time_ns() // 1_000_000
            records = source_records(kind, revision, registry=deployment.registry, time_ms=now_ms)
            offset = deliver(deployment.cluster, [Parcel(place, *record) for record in records])[0]
        if why == "key":
            complain(
                f"{source!r} has no tuple of this identity, so its partition was taken from the "
                f"hash of its key: {place.partition}; if the topic's producer chooses "
                "another one, give --partition"
            )
        (line,) = _lines(kind.arc, revision)
        people = for_people() and not as_json
        sent = {"topic": place.topic, "partition": place.partition, "offset": offset}
        _show(kind, line, sent, people=people)
        if dry_run:
            _show_consequences(deployment, progress, kind, content, revision, people=people)


class _Reader:
    """Decodes the user's tuple as ingest decodes a record."""

    def __init__(self, deployment: DeployedNetwork, source: Source) -> None:
        self.source, self.codec = source, deployment.codec(source.arc.name)
        self._intake = Intake(replace(source, envelope="native", format="json"), self.codec)

    def identity(self, identity: dict[str, Any]) -> pl.DataFrame:
        """Return an identity as a frame of one row."""
        revision = self.revision({"op": "delete", "before": identity})
        return frames.identities(revision, self.source.arc.identity)

    def revision(self, line: dict[str, Any]) -> pl.DataFrame:
        """Return a native revision as a frame of one row.

        Raises:
            RefusedRevisionError: If ingest would refuse it.
        """
        decoded = self._intake.decode([json_line(line)])
        if decoded.refused:
            refusal = decoded.refused[0]
            raise RefusedRevisionError(
                f"source {self.source.arc.name!r} would refuse this, {refusal.reason}: "
                f"{refusal.detail}"
            )
        return decoded.frame.select(list(frames.schema(self.source.arc.fields)))


def _revision(
    intake: _Reader, content: Content, op: str, fields: dict[str, Any], wanted: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the revision, and the last revision of its identity in the arc, if any."""
    arc = intake.source.arc
    identity = list(arc.identity)
    last = with_identities(arc, content.last, wanted)
    held = frames.entering(last, list(arc.fields))
    identity_text = ", ".join(f"{name}={fields[name]}" for name in identity)
    if op == "insert":
        if held.height:
            raise RefusedRevisionError(
                f"source {arc.name!r} holds {identity_text} already: {rows.tuples(arc, held)[0]}; "
                "use replace"
            )
        return intake.revision({"op": op, "after": fields}), last
    if held.is_empty():
        seen = "none of them of this tuple"
        if last.height:
            seen = f"and its last one, in epoch {last['epoch'][0]}, deletes it"
        raise RefusedRevisionError(
            f"source {arc.name!r} holds no tuple {identity_text}: {content.read} revisions of its "
            f"arc were read, {seen}; use insert"
        )
    before = rows.tuples(arc, held)[0]
    if op == "delete":
        return intake.revision({"op": op, "before": before}), last
    after = before | fields
    revision = intake.revision({"op": op, "before": before, "after": after})
    if all(revision[f"before.{n}"].eq_missing(revision[f"after.{n}"]).all() for n in arc.fields):
        raise RefusedRevisionError(
            f"source {arc.name!r} holds {identity_text} with these values: nothing changes"
        )
    return revision, last


def place_of(
    deployment: DeployedNetwork,
    source: Source,
    revision: pl.DataFrame,
    last: pl.DataFrame,
    requested: int | None,
) -> tuple[TopicPartition, str]:
    """Return the partition of the source's topic to send to, and how it was determined.

    Args:
        deployment: The network of the source.
        source: The source whose topic is sent to.
        revision: The revision to send.
        last: The last revision of its identity, if any; the task in it determines the partition.
        requested: The partition that the user requests, if any.
    """
    count = deployment.plan.placement.topic_partitions[source.arc.name]
    if requested is not None:
        if requested >= count:
            raise RefusedRevisionError(
                f"topic {source.topic!r} has no partition {requested}: it has 0 to {count - 1}"
            )
        return TopicPartition(source.topic, requested), "option"
    writer = TaskId.parse_or_none(last["task"][0]) if last.height else None
    source_scope = ScopeId.of_source(source.arc.name)
    if writer is not None and writer.scope == source_scope and writer.partition < count:
        return TopicPartition(source.topic, writer.partition), "arc"
    if count == 1:
        return TopicPartition(source.topic, 0), "only"
    if source.rekey:
        return TopicPartition(source.topic, 0), "any"
    key, _ = source_records(source, revision, registry=deployment.registry, time_ms=0)[0]
    return TopicPartition(source.topic, int(partitions([key], count)[0])), "key"


def _show(source: Source, line: dict[str, Any], sent: dict[str, Any], *, people: bool) -> None:
    if not people:
        print_lines([line | sent])
        return
    _print_revision(source.arc, line)
    where = f"{sent['topic']}, partition {sent['partition']}"
    offset = sent["offset"]
    typer.echo(f"not sent; would go to {where}" if offset is None else f"sent: {where} at {offset}")


def _show_consequences(
    deployment: DeployedNetwork,
    progress: Progress,
    source: Source,
    content: Content,
    revision: pl.DataFrame,
    *,
    people: bool,
) -> None:
    plan = deployment.plan
    kept_back = [name for name, box in plan.boxes.items() if box.reads_back]
    contents = {
        name: content if name == source.arc.name else content_of(progress, deployment.codec(name))
        for name in (*plan.topology.sources, *kept_back)
    }
    tuples = {name: c.tuples(plan.topology.arcs[name]) for name, c in contents.items()}
    epoch = progress.newest_epoch()
    network = InMemory(plan, tuples, epoch=epoch, watermark=progress.watermark_now)
    found = network.consequences({source.arc.name: revision})
    for arc, revisions in found.revisions.items():
        if arc in plan.topology.sources:
            continue
        for line in _lines(plan.topology.arcs[arc], revisions):
            if people:
                _print_revision(plan.topology.arcs[arc], line)
            else:
                print_lines([{"arc": arc, **line}])
    _show_ways(found.ways, people=people)
    read = ", ".join(f"{c.read} revisions of {name!r}" for name, c in contents.items())
    without_history = [
        name for name in plan.topology.sources if not plan.topology.arcs[name].is_connection_point
    ]
    rest = ""
    if without_history:
        rest = f"; {', '.join(without_history)} keep no history, so tuples may be missing"
    complain(f"read {read}{rest}; windows that the watermark has not passed show nothing yet")


def _show_ways(by_box: dict[str, dict[str, int]], *, people: bool) -> None:
    """Print for each box that the revision reaches by which way it revises its results."""
    for box, ways in by_box.items():
        if people:
            typer.echo(f"{box}: {ways_text(ways)}")
        else:
            print_lines([{"box": box, **ways}])


def _lines(arc: Arc, revisions: pl.DataFrame) -> list[dict[str, Any]]:
    """Return revisions as plain values without an epoch, since they have none yet."""
    lines = rows.revisions(arc, revisions.with_columns(epoch=pl.lit(0)))
    return [{name: side for name, side in line.items() if name != "epoch"} for line in lines]


def _print_revision(arc: Arc, line: dict[str, Any]) -> None:
    Console(soft_wrap=True, highlight=False).print(f"{arc.name}:", revision_line(arc, line))
