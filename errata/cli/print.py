"""`errata print`: prints the decoded records of a network's topics with their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import cell, for_people, print_lines
from errata.client.json_lines import json_line
from errata.client.rows import PlainDecoder
from errata.client.texts import as_time
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
        int | None, typer.Option(min=1, metavar="N", help="Print at most N records.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the records of one of a network's topics, up to its current end.

    Prints partition, offset, timestamp, key and value of each record; tombstones have no value, and
    a value that can't be decoded is printed in base64. Records of arcs and dead letters also show
    whether they are committed: whether a report of their task covers them (in JSON "believed").
    Readers ignore all others; of exact copies one counts.
    """
    with deployed(net) as deployment:
        name, needs_report = topics_of(deployment).get(topic, ("", False))
        if not name:
            known = ", ".join(topics_of(deployment))
            raise UnknownNameError(
                f"network {deployment.plan.network!r} has no topic {topic!r}: it has {known}"
            )
        count = deployment.cluster.partitions(name)
        if partition is not None and partition >= count:
            raise UnknownNameError(
                f"topic {name!r} has no partition {partition}: it has 0 to {count - 1}"
            )
        wanted = range(count) if partition is None else [partition]
        left = limit
        view = Progress(deployment.cluster, plan=deployment.plan) if needs_report else None
        for number in wanted:
            for records in _read(deployment, TopicPartition(name, number), offset):
                if view is not None:
                    view.catch_up()  # read after the records, so that its reports cover all of them
                _print(_with_coverage(records[:left], view), as_json=as_json)
                left = None if left is None else left - len(records)
                if left is not None and left <= 0:
                    return


def topics_of(deployment: DeployedNetwork) -> dict[str, tuple[str, bool]]:
    """Return a network's topics by the user's names, and whether their records need a report."""
    plan, net = deployment.plan, deployment.plan.network
    topics = {arc: (plan.deployment.topic(arc), True) for arc in plan.topology.topics}
    topics["progress"] = names.progress_topic(net), False
    topics["plan"] = names.plan_topic(net), False
    topics["dead-letters"] = names.dead_letters_topic(net), True
    topics["schemas"] = names.SCHEMAS_TOPIC, False
    topics |= {
        f"{arc}.requests": (plan.deployment.requests(arc), False) for arc in plan.replayed_points()
    }
    topics |= {
        f"{s}.replay": (plan.deployment.replies(plan.topology.scopes[s]), False)
        for s in plan.topology.scopes
    }
    return topics


def _read(
    deployment: DeployedNetwork, place: TopicPartition, offset: int
) -> Iterator[list[dict[str, Any]]]:
    if offset >= deployment.cluster.end(place):
        return
    decoder, reader = PlainDecoder(deployment.registry), deployment.cluster.reader({place: offset})
    try:
        for records in catch_up(deployment.cluster, reader, place):
            yield decoder.records(records)
    finally:
        reader.close()


def _with_coverage(
    records: list[dict[str, Any]], view: Progress | None
) -> Iterator[dict[str, Any]]:
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
            line.append(
                *(("committed ", "green") if record["believed"] else ("uncommitted ", "red"))
            )
        line.append_text(cell(f"{_text(record['key'])}  {_text(record['value'])}"))
        console.print(line)


def _text(content: Any) -> str:
    if content is None:
        return "-"
    return content if isinstance(content, str) else json_line(content).decode()
