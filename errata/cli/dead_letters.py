"""`errata dead-letters`: lists refused records with their reasons, and sends them again."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from errata.cli.app import DEFAULT, JsonOption, NetworkArgument, command, deployed, group
from errata.cli.output import as_time, for_people, print_lines, print_table
from errata.client import rows
from errata.client.rows import PlainDecoder
from errata.client.sending import Parcel, deliver
from errata.deploy.deployment import DeployedNetwork, UnknownNameError
from errata.observe.network_progress import current
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.dead_letter import DeadLetter, PlaceError, RecordPlace, decode_value
from errata.run.exit_status import complain
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.cluster import Cluster, TopicPartition, catch_up

MOST_SHOWN = 100
"""The most rows of the table on a terminal."""

_group = group(
    "dead-letters",
    about="""List what was refused, at ingest or by a box; show one in full; send records again.

    [bold]errata dead-letters NET[/bold] is short for errata dead-letters list NET.""",
)

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="The place of the refused record: PARTITION:OFFSET, or TOPIC:PARTITION:OFFSET. A "
        "tuple that a box refused has the offset -1; of several, the newest is used.",
        show_default=False,
    ),
]


@command(DEFAULT, of=_group, example="errata dead-letters tape.py --json > refused.jsonl")
def list_dead_letters(net: NetworkArgument, as_json: JsonOption = False) -> None:
    """List what was refused: the record, its place, and the reason.

    A tuple that a box refused (a function of yours raised for it) has the topic of its arc, and the
    offset -1.

    Prints JSON lines, or on a terminal a table of the newest hundred. Keys and values are printed
    as text, or as key_base64 and value_base64 if they are not text.
    """
    with deployed(net) as deployment:
        committed = committed_dead_letters(deployment.cluster, deployment.plan)
        if as_json or not for_people():
            print_lines(map(_line, committed))
            return
        listed = list(committed)
    counts = Counter(dead_letter.reason for dead_letter in listed)
    summary = ", ".join(f"{count} {reason}" for reason, count in counts.most_common()) or "none"
    rest = f"; the newest {MOST_SHOWN} of {len(listed)}" if len(listed) > MOST_SHOWN else ""
    print_table(
        f"dead letters of {deployment.plan.network}",
        ["reason", "detail", "topic", "partition", "offset", "written", "key", "value"],
        (
            (x.reason, x.detail, x.topic, x.partition, x.offset, as_time(x.time_ms), *_texts(x))
            for x in listed[-MOST_SHOWN:]
        ),
        caption=summary + rest,
    )


@command("show", of=_group, example="errata dead-letters show tape.py 0:17")
def show(net: NetworkArgument, place: PlaceArgument, as_json: JsonOption = False) -> None:
    """Show one refused record: the reason, and its key and value as bytes, as text and decoded."""
    with deployed(net) as deployment:
        dead_letter = _dead_letter_at(
            list(committed_dead_letters(deployment.cluster, deployment.plan)), place
        )
        plain = _line(dead_letter)
        decoder = PlainDecoder(deployment.registry)
        plain["key_decoded"], plain["value_decoded"] = decoder.decode(
            [dead_letter.key, dead_letter.value]
        )
    if as_json or not for_people():
        print_lines([plain])
        return
    for side, content in (("key", dead_letter.key), ("value", dead_letter.value)):
        plain[f"{side}_hex"] = None if content is None else content.hex(" ")
        decoded = plain[f"{side}_decoded"]
        plain[f"{side}_decoded"] = None if decoded is None else rows.json_line(decoded).decode()
    plain["time_ms"] = as_time(dead_letter.time_ms)
    print_table(f"{dead_letter.topic}, {place}", ["", ""], plain.items())


@command("resend", of=_group, example="errata dead-letters resend tape.py --reason undecodable")
def resend(
    net: NetworkArgument,
    every: Annotated[bool, typer.Option("--all", help="Send all of them.")] = False,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="REASON", help="Send those with this reason. May be repeated."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="Send the one at PARTITION:OFFSET. May be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent; send nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send refused records again, verbatim, to the partition of the topic that they came from.

    Use it when the cause of the refusal no longer exists: a schema that was not registered yet, an
    insert that came too late. A record that is refused again becomes a new dead letter; the old one
    stays. Of equal records (same partition, key and value) one is sent. Tuples that a box refused
    are not records of a source, and can't be sent.
    """
    if not (every or reason or at):
        raise typer.BadParameter("needs --all, --reason REASON or --at PARTITION:OFFSET")
    with deployed(net) as deployment:
        committed = list(committed_dead_letters(deployment.cluster, deployment.plan))
        chosen = _chosen(deployment, committed, every=every, reasons=reason or [], places=at or [])
        records = [Parcel(TopicPartition(x.topic, x.partition), x.key, x.value) for x in chosen]
        by_record = dict(zip(records, chosen, strict=True))
        offsets: list[int | None] = [None] * len(by_record)
        if not dry_run:
            offsets = list(deliver(deployment.cluster, list(by_record)))
    if as_json:
        print_lines(
            {"topic": x.topic, "partition": x.partition, "offset": x.offset, "sent_as": offset}
            for x, offset in zip(by_record.values(), offsets, strict=True)
        )
        return
    duplicates, tuples = len(chosen) - len(by_record), sum(x.is_of_box for x in committed) * every
    rest = f"; {duplicates} left out, equal to one of these" if duplicates else ""
    rest += f"; {tuples} that boxes refused can't be sent" if tuples else ""
    verb = "would be sent" if dry_run else "sent"
    typer.echo(f"{len(by_record)} of {len(committed)} dead letters {verb}{rest}")


class NoRecordError(ErrataError):
    """A dead letter can't be sent again: it is a tuple that a box refused, not a source's record.

    Args:
        dead_letter: The dead letter.
    """

    def __init__(self, dead_letter: DeadLetter) -> None:
        super().__init__(
            f"a tuple that a box refused ({dead_letter.reason}) can't be sent again: only tasks "
            f"write to topic {dead_letter.topic!r} of an arc; correct the source's record that it "
            "comes from (errata revise)"
        )


def _chosen(
    deployment: DeployedNetwork,
    dead_letters: list[DeadLetter],
    *,
    every: bool,
    reasons: list[str],
    places: list[str],
) -> list[DeadLetter]:
    known = list(dict.fromkeys(dead_letter.reason for dead_letter in dead_letters))
    for reason in reasons:
        deployment.require_known("dead letter with reason", reason, known)
    wanted = [_dead_letter_at(dead_letters, place) for place in places]
    named = [x for x in dead_letters if x.reason in reasons or x in wanted]
    if tuple_of_box := next((x for x in named if x.is_of_box), None):
        raise NoRecordError(tuple_of_box)
    return [x for x in dead_letters if x in named or (every and not x.is_of_box)]


def _dead_letter_at(dead_letters: list[DeadLetter], place: str) -> DeadLetter:
    """Return the dead letter of the refused record at a place.

    Raises:
        UnknownNameError: If there is none, or several topics have one at that place.
    """
    try:
        wanted = RecordPlace.parse(place)
    except PlaceError as error:
        raise typer.BadParameter(str(error)) from None
    matches = [x for x in dead_letters if x.place == replace(wanted, topic=wanted.topic or x.topic)]
    if len({x.topic for x in matches}) > 1:
        forms = " or ".join(str(x.place) for x in matches)
        raise UnknownNameError(f"several topics have a dead letter at {place}; use {forms}")
    if not matches:
        some = ", ".join(str(x.place) for x in dead_letters[-5:]) or "none"
        raise UnknownNameError(f"no dead letter has the place {place}; the newest have: {some}")
    return matches[-1]


def committed_dead_letters(cluster: Cluster, plan: CompiledPlan) -> Iterator[DeadLetter]:
    """Yield the dead letters that a report covers, oldest first; others were never committed.

    See ``docs/protocol.md#5-committed-records``.
    """
    return (dead_letter for _, dead_letter in dead_letters_from(cluster, plan, 0))


def dead_letters_from(
    cluster: Cluster, plan: CompiledPlan, offset: int
) -> Iterator[tuple[int, DeadLetter]]:
    """Yield the committed dead letters from an offset of their topic on, each with its offset."""
    source = TopicPartition(names.dead_letters_topic(plan.network), 0)
    reader = cluster.reader({source: offset})
    try:
        batches = list(catch_up(cluster, reader, source))
    finally:
        reader.close()
    # Read after the dead letters, so that its reports cover all of them.
    view = current(cluster, plan)
    view.close()
    foreign: list[int] = []
    newest: dict[str, tuple[int, int]] = {}
    told: dict[str, set[DeadLetter]] = {}
    for records in batches:
        for place, value in zip(records.offsets, records.values, strict=True):
            dead_letter = decode_value(value)
            if dead_letter is None and value is not None:
                foreign.append(place)
            if dead_letter and view.of(dead_letter.task).covers(
                dead_letter.attempt, dead_letter.epoch
            ):
                task, epoch = dead_letter.task, (dead_letter.attempt, dead_letter.epoch)
                if newest.get(task) != epoch:
                    newest[task], told[task] = epoch, set()
                if dead_letter not in told[task]:  # a task of a batch on Spark may run twice
                    told[task].add(dead_letter)
                    yield place, dead_letter
    if foreign:
        complain(
            f"{len(foreign)} records of topic '{source.topic}' are no dead letters, the last in "
            f"partition 0 at offset {foreign[-1]}; they are passed over: check who may write there"
        )


def _line(dead_letter: DeadLetter) -> dict[str, Any]:
    plain = vars(dead_letter).copy()
    for side in ("key", "value"):
        content = plain[side]
        if content is not None:
            try:
                plain[side] = content.decode()
            except UnicodeDecodeError:
                del plain[side]
                plain[f"{side}_base64"] = base64.b64encode(content).decode()
    return plain


def _texts(dead_letter: DeadLetter) -> list[str]:
    return [
        (side or b"").decode(errors="backslashreplace")
        for side in (dead_letter.key, dead_letter.value)
    ]
