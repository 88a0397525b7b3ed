"""`errata why`: prints why a result has its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import cell, for_people, print_lines
from errata.cli.tail import revision_line
from errata.client import rows
from errata.client.identity import IdentityTextError, wanted
from errata.client.in_memory import ways_text
from errata.client.origin import Origin
from errata.client.texts import as_time, display_values
from errata.client.told import Story, without_epoch
from errata.client.why import Explanation
from errata.observe.diagnosis import moment
from errata.observe.network_progress import current
from errata.processors.wire.report import INTERVAL_MS


@command("why", example="errata why tape.py totals product=CDS window=2026-07-15T09:00")
def why(
    net: NetworkArgument,
    arc: Annotated[
        str,
        typer.Argument(metavar="ARC", help="An arc that has a topic.", autocompletion=arc_names),
    ],
    key: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD=VALUE",
            help="Fields of the tuple's identity; window= is short for window_start=.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Explain the last N revisions.")
    ] = 10,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Print the tuples that it is made of, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print why a tuple of an arc has its values: each revision, newest first, with its causes.

    A cause is a revision of a source without which the tuple would have another value; it is
    printed with its record in the source's topic. Between causes and result the revisions of other
    arcs on the way are printed, and what each box replayed or fetched for them.

    All of it is recomputed from what the arcs of the sources hold. Superseded revisions are there
    for as long as compaction leaves them; where they are gone, no causes are printed, and it says
    so. Where a source is an arc of another network, it has to be asked there.

    Prints a JSON object for each revision, or on a terminal some lines.
    """
    with deployed(net) as deployment:
        kind = deployment.plan.topology.arcs[deployment.require_topic(arc)]
        try:
            named = wanted(kind, key or [])
        except IdentityTextError as error:
            raise typer.BadParameter(str(error), param_hint="FIELD=VALUE") from None
        progress = current(deployment.cluster, deployment.plan)
        story = Story(deployment, arc, named, progress)
        printer = _Printer(story, with_inputs=inputs)
        for explanation in story.explanations(limit):
            if as_json or not for_people():
                print_lines([story.plain(explanation, with_inputs=inputs)])
            else:
                printer.show(explanation)
        progress.close()


class _Printer:
    """Prints explanations for people.

    Args:
        story: The revisions of a tuple.
        with_inputs: Whether to print the tuples that it is made of.
    """

    def __init__(self, story: Story, *, with_inputs: bool) -> None:
        self.story, self.with_inputs = story, with_inputs

    def show(self, told: Explanation) -> None:
        """Print an explanation for people."""
        console = Console(soft_wrap=True, highlight=False)
        (line,) = rows.revisions(self.story.arc, told.revision)
        console.print(Text(as_time(line["epoch"] * INTERVAL_MS), style="bold"), end=" ")
        console.print(f"{self.story.arc.name}:", revision_line(self.story.arc, line))
        if not told.is_recomputed:
            console.print(f"  {self.story.gone()}")
            return
        because = "because of, among others," if told.are_enough else "because of"
        self._show_records(console, because, told.causes)
        if told.not_tried:
            console.print(f"  and perhaps of {told.not_tried} more, too many to try each")
        if told.closed is not None:
            before, after = (as_time(moment(ms)) or "none" for ms in told.closed)
            console.print(f"  because the watermark passed it: from {before} to {after}")
            self._show_records(console, "moved by", told.moved_by)
        for arc, revision in self.story.between(told):
            console.print(f"  by way of {arc.name}:", revision_line(arc, without_epoch(revision)))
        for box, counts in told.ways.items():
            console.print(f"  {box}: {ways_text(counts)}")
        if self.with_inputs:
            self._show_inputs(console, told)

    def _show_inputs(self, console: Console, told: Explanation) -> None:
        for source, sides in told.inputs.items():
            arc = self.story.named(source)
            for side, tuples in zip(("before", "after"), sides, strict=True):
                console.print(f"  made of {tuples.height} tuples of {source} {side}:")
                for values in rows.tuples(arc, tuples.sort(arc.event_time, *arc.identity)):
                    shown = zip(values, display_values(arc.fields, values), strict=True)
                    console.print("   ", cell(" ".join(f"{name}={value}" for name, value in shown)))

    def _show_records(
        self, console: Console, what: str, revisions: Mapping[str, pl.DataFrame]
    ) -> None:
        for source, line, origin in self.story.records(revisions):
            console.print(f"  {what} {source}:", revision_line(self.story.named(source), line))
            console.print(f"    {_place_text(origin)}")


def _place_text(origin: Origin | None) -> str:
    """Return where a record is."""
    if origin is None:
        return "its record is no longer in the topic"
    at = f"{origin.topic}, partition {origin.partition}, offset {origin.offset}"
    return f"{at}, written {as_time(origin.time_ms)}"
