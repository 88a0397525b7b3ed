"""`errata dead-letters`: lists refused records with their reasons, and sends them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from errata.cli.app import (
    DEFAULT,
    JsonOption,
    NetworkArgument,
    TextOption,
    command,
    deployed,
    group,
    moment_ms,
)
from errata.cli.output import for_people, print_lines, print_table, wants_text
from errata.client import dead_letters
from errata.client.input_file import read_lines
from errata.client.json_lines import json_line
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


ReasonOption = Annotated[
    list[str] | None,
    typer.Option("--reason", metavar="REASON", help="With this reason. May be repeated."),
]


@command(DEFAULT, of=_group, example="errata dead-letters tape.py --json > refused.jsonl")
def list_dead_letters(
    net: NetworkArgument,
    reason: ReasonOption = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Of records of this topic.")
    ] = None,
    contains: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Whose detail, key or value contains this text."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of records written at this time or later.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Acknowledged ones, too.")] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Print how many there are by reason, and no more.")
    ] = False,
    as_json: JsonOption = False,
    as_text: TextOption = False,
) -> None:
    """List what was refused: the record, its place, and the reason.

    A tuple that a box refused (a function of yours raised for it) has the topic of its arc, and the
    offset -1.

    Prints JSON lines, or on a terminal a table of the newest hundred. Keys and values are printed
    as text, or as key_base64 and value_base64 if they are not text.
    """
    from_ms = None if since is None else moment_ms(since, hint="--since")

    def is_wanted(letter: DeadLetter) -> bool:
        return (
            (not reason or letter.reason in reason)
            and topic in (None, letter.topic)
            and (contains is None or dead_letters.contains(letter, contains))
            and (from_ms is None or letter.time_ms >= from_ms)
        )

    with deployed(net) as deployment:
        cluster, network = deployment.cluster, deployment.plan.network
        done = dead_letters.Acknowledged() if every else dead_letters.acknowledged(cluster, network)
        hidden, listed = 0, list[DeadLetter]()
        for offset, letter in dead_letters.committed_from(cluster, deployment.plan, 0):
            if offset in done:
                hidden += 1
            elif is_wanted(letter):
                listed.append(letter)
    counts = Counter(letter.reason for letter in listed).most_common()
    is_text = wants_text(as_json, as_text)
    if count:
        if is_text:
            print_table(f"dead letters of {network}", ["reason", "count"], counts)
        else:
            print_lines({"reason": each, "count": number} for each, number in counts)
        return
    if not is_text:
        print_lines(map(dead_letters.as_plain, listed))
        return
    summary = ", ".join(f"{number} {each}" for each, number in counts) or "none"
    rest = f"; the newest {MOST_SHOWN} of {len(listed)}" if len(listed) > MOST_SHOWN else ""
    rest += f"; {hidden} acknowledged ones are not listed (--all)" if hidden else ""
    print_table(
        f"dead letters of {network}",
        ["reason", "detail", "topic", "partition", "offset", "written", "key", "value"],
        (
            (x.reason, x.detail, x.topic, x.partition, x.offset, as_time(x.time_ms), *_texts(x))
            for x in listed[-MOST_SHOWN:]
        ),
        caption=summary + rest,
    )


@command("acknowledge", of=_group, example="errata dead-letters acknowledge tape.py --all")
def acknowledge(
    net: NetworkArgument,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    reason: ReasonOption = None,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="The one at PARTITION:OFFSET. May be repeated."),
    ] = None,
) -> None:
    """Note that dead letters have been seen to: `list` leaves them out.

    The note is the committed position of the consumer group NETWORK.dead-letters, so that Kafka's
    own tools show how many are open. The records stay in their topic.
    """
    if not (every or reason or at):
        raise typer.BadParameter("needs --all, --reason REASON or --at PARTITION:OFFSET")
    with deployed(net) as deployment:
        cluster, network = deployment.cluster, deployment.plan.network
        found = list(dead_letters.committed_from(cluster, deployment.plan, 0))
        letters = [letter for _, letter in found]
        for each in reason or ():
            known = dict.fromkeys(letter.reason for letter in letters)
            deployment.require_known("dead letter with reason", each, known)
        with _usage():
            named = [dead_letters.letter_at(letters, place) for place in at or ()]
        chosen = [
            offset
            for offset, letter in found
            if every or letter.reason in (reason or ()) or letter in named
        ]
        before = dead_letters.acknowledged(cluster, network)
        now = before.and_these(chosen, known=[offset for offset, _ in found])
        dead_letters.acknowledge(cluster, network, now)
        left = sum(offset not in now for offset, _ in found)
    typer.echo(f"{len([o for o in chosen if o not in before])} acknowledged; {left} are open")


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
        plain[f"{side}_decoded"] = None if decoded is None else json_line(decoded).decode()
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
    edited: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Send what this file has: lines of `errata dead-letters --json`, with other keys "
            "and values; - is standard input.",
        ),
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

    To correct many of them, edit a list of them and send it with --from.
    """
    if bool(every or reason or at) == bool(edited):
        raise typer.BadParameter(
            "needs --all, --reason REASON, --at PARTITION:OFFSET, or --from FILE"
        )
    with deployed(net) as deployment:
        listed = list(dead_letters.committed(deployment.cluster, deployment.plan))
        with _usage():
            chosen = (
                dead_letters.edited(listed, read_lines(edited))
                if edited
                else dead_letters.chosen(
                    deployment, listed, every=every, reasons=reason or [], places=at or []
                )
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
