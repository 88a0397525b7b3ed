"""`errata print`: prints the decoded records of a network's topics with their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import as_time, cell, for_people, print_lines
from errata.client import rows
from errata.client.rows import PlainDecoder
from errata.deploy.deployment import DeployedNetwork, UnknownNameError
from errata.observe.network_progress import Progress
from errata.topics import names
from errata.topics.cluster import TopicPartition, catch_up

_WRITER = ("task", "attempt", "epoch")


@command("print", example="errata print tape.py progress --limit 10")
def print_(
    net: NetworkArgument,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="An arc; progress, plan, dead-letters or schemas; ARC.requests; SCOPE.replay.",
            autocompletion=arc_names,
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this partition; else all.")
    ] = None,
    offset: Annotated[
        int, typer.Option(min=0, metavar="N", help="Begin at this offset of each partition.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many records.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the records of one of a network's topics, up to its current end.

    Prints partition, offset, timestamp, key and value of each record; tombstones have no value, and
    a value that can't be decoded is printed in base64. Records of arcs and dead letters also show
    whether they are believed: whether a report of their task covers them. Readers ignore all
    others; of exact copies one counts.
    """
    with deployed(net) as found:
        name, believable = topics_of(found).get(topic, ("", False))
        if not name:
            known = ", ".join(topics_of(found))
            raise UnknownNameError(
                f"network {found.plan.network!r} has no topic {topic!r}: it has {known}"
            )
        count = found.cluster.partitions(name)
        if partition is not None and partition >= count:
            raise UnknownNameError(
                f"topic {name!r} has no partition {partition}: it has 0 to {count - 1}"
            )
        wanted = range(count) if partition is None else [partition]
        left = limit
        view = Progress(found.cluster, plan=found.plan) if believable else None
        for number in wanted:
            for records in _read(found, TopicPartition(name, number), offset):
                if view is not None:
                    view.catch_up()  # read after the records, so that its reports cover all of them
                _print(_judged(records[:left], view), as_json=as_json)
                left = None if left is None else left - len(records)
                if left is not None and left <= 0:
                    return


def topics_of(found: DeployedNetwork) -> dict[str, tuple[str, bool]]:
    """Return a network's topics by the user's names, and whether their records need a report."""
    plan, net = found.plan, found.plan.network
    topics = {arc: (plan.deployment.topic(arc), True) for arc in plan.topology.topics}
    topics["progress"] = names.progress_topic(net), False
    topics["plan"] = names.plan_topic(net), False
    topics["dead-letters"] = names.dead_letters_topic(net), True
    topics["schemas"] = names.SCHEMAS_TOPIC, False
    topics |= {f"{arc}.requests": (plan.deployment.requests(arc), False) for arc in plan.asked()}
    topics |= {
        f"{s}.replay": (plan.deployment.replies(plan.topology.scopes[s]), False)
        for s in plan.topology.scopes
    }
    return topics


def _read(
    found: DeployedNetwork, place: TopicPartition, offset: int
) -> Iterator[list[dict[str, Any]]]:
    if offset >= found.cluster.end(place):
        return
    decoder, reader = PlainDecoder(found.registry), found.cluster.reader({place: offset})
    try:
        for records in catch_up(found.cluster, reader, place):
            yield decoder.records(records)
    finally:
        reader.close()


def _judged(records: list[dict[str, Any]], view: Progress | None) -> Iterator[dict[str, Any]]:
    """Yield records; those of arcs and dead letters say whether a report covers them."""
    for record in records:
        value = record["value"]
        if view is not None and isinstance(value, dict) and all(name in value for name in _WRITER):
            report = view.of(value["task"])
            record["believed"] = report.covers(value["attempt"], value["epoch"])
        yield record


def _print(records: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    if as_json or not for_people():
        print_lines(records)
        return
    console = Console(soft_wrap=True, highlight=False)
    for record in records:
        line = Text(f"{record['partition']}:{record['offset']} ", style="bold")
        line.append(f"{as_time(record['time_ms'])} ", style="dim")
        if "believed" in record:
            line.append(*(("believed ", "green") if record["believed"] else ("dead ", "red")))
        line.append_text(cell(f"{_told(record['key'])}  {_told(record['value'])}"))
        console.print(line)


def _told(content: Any) -> str:
    if content is None:
        return "-"
    return content if isinstance(content, str) else rows.json_line(content).decode()
