"""`errata dead-letters`: lists refused records with their reasons, and sends them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from errata.cli.app import DEFAULT, JsonOption, NetworkArgument, command, deployed, group
from errata.cli.output import for_people, print_lines, print_table
from errata.client import dead_letters, rows
from errata.client.rows import PlainDecoder
from errata.client.texts import as_time
from errata.processors.wire.dead_letter import DeadLetter, PlaceError

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
        committed = dead_letters.committed(deployment.cluster, deployment.plan)
        if as_json or not for_people():
            print_lines(map(dead_letters.as_plain, committed))
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
        listed = list(dead_letters.committed(deployment.cluster, deployment.plan))
        with _usage():
            dead_letter = dead_letters.letter_at(listed, place)
        plain = dead_letters.as_plain(dead_letter)
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
        listed = list(dead_letters.committed(deployment.cluster, deployment.plan))
        with _usage():
            chosen = dead_letters.chosen(
                deployment, listed, every=every, reasons=reason or [], places=at or []
            )
        sent = dead_letters.send_again(deployment.cluster, chosen, dry_run=dry_run)
    if as_json:
        print_lines(
            {"topic": x.topic, "partition": x.partition, "offset": x.offset, "sent_as": offset}
            for x, offset in sent
        )
        return
    duplicates, tuples = len(chosen) - len(sent), sum(x.is_of_box for x in listed) * every
    rest = f"; {duplicates} left out, equal to one of these" if duplicates else ""
    rest += f"; {tuples} that boxes refused can't be sent" if tuples else ""
    verb = "would be sent" if dry_run else "sent"
    typer.echo(f"{len(sent)} of {len(listed)} dead letters {verb}{rest}")


@contextmanager
def _usage() -> Iterator[None]:
    """Turn a malformed place into wrong usage."""
    try:
        yield
    except PlaceError as error:
        raise typer.BadParameter(str(error)) from None


def _texts(dead_letter: DeadLetter) -> list[str]:
    return [
        (side or b"").decode(errors="backslashreplace")
        for side in (dead_letter.key, dead_letter.value)
    ]
