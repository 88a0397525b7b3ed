"""`errata why`: prints why a result has its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import (
    as_duration,
    as_time,
    cell,
    display_values,
    for_people,
    print_lines,
)
from errata.cli.tail import revision_line
from errata.client import rows
from errata.client.in_memory import ways_text
from errata.client.origin import Origin, Origins
from errata.client.reading import Tail
from errata.client.why import Explanation, Why
from errata.deploy.deployment import DeployedNetwork
from errata.observe.diagnosis import moment
from errata.observe.network_progress import Progress, current
from errata.processors.boxes.matching import with_identities
from errata.processors.boxes.states import START
from errata.processors.envelopes.texts import parse
from errata.processors.wire.report import INTERVAL_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.errors import ErrataError

MOST_NAMED = 5
"""The most results that a message lists."""


class NoSuchResultError(ErrataError):
    """An arc has no result, or several, of the values that were given."""


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
        for source in deployment.plan.topology.sources_of[arc]:
            deployment.require_own_source(source)
        progress = current(deployment.cluster, deployment.plan)
        wanted, history = _wanted(kind, key or []), _Reader(deployment, progress)
        asked = Why(deployment.plan, arc, wanted, history, watermark=progress.watermark_now)
        revisions = asked.revisions()
        _require_one(kind, revisions)
        printer = _Printer(deployment, kind, with_inputs=inputs)
        for explanation in islice(asked.explanations(revisions), limit):
            if as_json or not for_people():
                print_lines([printer.plain(explanation)])
            else:
                printer.show(explanation)
        progress.close()


class _Reader:
    """Reads the revisions that arcs have now.

    Args:
        deployment: The network.
        progress: The reports of its tasks.
    """

    def __init__(self, deployment: DeployedNetwork, progress: Progress) -> None:
        self.deployment, self.progress = deployment, progress

    def __call__(self, arc: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
        codec = self.deployment.codec(arc)
        nothing = codec.empty.with_columns(pl.lit(0, pl.Int32).alias("partition"))
        reading = Tail(self.progress, codec, from_beginning=True)
        try:
            parts = reading.upto_now()
            if wanted is not None:
                parts = (with_identities(codec.arc, part, wanted) for part in parts)
            return pl.concat([nothing, *parts])
        finally:
            reading.close()


def _wanted(arc: Arc, given: list[str]) -> pl.DataFrame | None:
    """Return the values of identity fields that a command line gives, in one row; None if none.

    Raises:
        BadParameter: If one is malformed, or of no field of the identity.
    """
    identity = [name for name in arc.identity if name in arc.visible]
    columns: dict[str, pl.Series] = {}
    for pair in given:
        name, separator, text = pair.partition("=")
        name = START if name == "window" and "window" not in arc.fields else name
        if not separator or name not in identity:
            raise typer.BadParameter(
                f"{pair!r} needs to be FIELD=VALUE with a field of the identity of {arc.name!r}: "
                f"{', '.join(identity)}",
                param_hint="FIELD=VALUE",
            )
        kind = arc.fields[name]
        columns[name] = parse(pl.Series([text], dtype=pl.String), kind)
        if columns[name].null_count() and not (kind.optional and text == "null"):
            raise typer.BadParameter(
                f"{name!r} needs {kind.required}, found {text!r}", param_hint="FIELD=VALUE"
            )
    return pl.DataFrame(columns) if columns else None


def _require_one(arc: Arc, revisions: pl.DataFrame) -> None:
    """Check that revisions are of one tuple.

    Raises:
        NoSuchResultError: If they are of none, or of several.
    """
    identities = frames.identities(revisions, arc.identity).unique(maintain_order=True)
    if identities.height == 1:
        return
    if identities.is_empty():
        raise NoSuchResultError(
            f"arc {arc.name!r} has no revision of such a tuple in its topic; see `errata tail NET "
            f"{arc.name} --from-beginning`"
        )
    last = frames.last(revisions, arc.identity)[-MOST_NAMED:].reverse()
    shown = "; ".join(_identity_text(arc, line) for line in rows.revisions(arc, last))
    raise NoSuchResultError(
        f"arc {arc.name!r} has {identities.height} such tuples; name one, by "
        f"{', '.join(n for n in arc.identity if n in arc.visible)}. Revised last: {shown}"
    )


def _identity_text(arc: Arc, line: Mapping[str, Any]) -> str:
    """Return the identity of a revision as it is given on the command line."""
    side = line.get("after") or line["before"]
    return " ".join(
        f"{name}={shown}"
        for name, shown in zip(side, display_values(arc.fields, side), strict=True)
        if name in arc.identity
    )


class _Printer:
    """Prints explanations.

    Args:
        deployment: The network.
        arc: The arc whose tuple is explained.
        with_inputs: Whether to print the tuples that it is made of.
    """

    def __init__(self, deployment: DeployedNetwork, arc: Arc, *, with_inputs: bool) -> None:
        self.deployment, self.arc, self.with_inputs = deployment, arc, with_inputs
        self._origins: dict[str, Origins] = {}

    def plain(self, told: Explanation) -> dict[str, Any]:
        """Return an explanation as plain values."""
        (line,) = rows.revisions(self.arc, told.revision)
        found: dict[str, Any] = {
            "arc": self.arc.name,
            **line,
            "at": line["epoch"] * INTERVAL_MS,
            "is_explained": told.is_recomputed,
        }
        if not told.is_recomputed:
            return found | {"reason": self._gone()}
        found["causes"] = [
            {"source": source, **cause, **_place(origin)}
            for source, cause, origin in self._records(told.causes)
        ]
        found["causes_are"] = "enough" if told.are_enough else "needed"
        found["not_tried"] = told.not_tried
        if told.closed is not None:
            found["watermark"] = dict(
                zip(("before", "after"), map(moment, told.closed), strict=True)
            )
            found["moved_by"] = [
                {"source": source, **cause, **_place(origin)}
                for source, cause, origin in self._records(told.moved_by)
            ]
        found["between"] = [
            {"arc": arc.name, **_without_epoch(revision)} for arc, revision in self._between(told)
        ]
        found["boxes"] = told.ways
        if self.with_inputs:
            found["inputs"] = {
                source: {
                    side: rows.tuples(self._arc(source), tuples)
                    for side, tuples in zip(("before", "after"), sides, strict=True)
                }
                for source, sides in told.inputs.items()
            }
        return found

    def show(self, told: Explanation) -> None:
        """Print an explanation for people."""
        console = Console(soft_wrap=True, highlight=False)
        (line,) = rows.revisions(self.arc, told.revision)
        console.print(Text(as_time(line["epoch"] * INTERVAL_MS), style="bold"), end=" ")
        console.print(f"{self.arc.name}:", revision_line(self.arc, line))
        if not told.is_recomputed:
            console.print(f"  {self._gone()}")
            return
        because = "because of, among others," if told.are_enough else "because of"
        self._show_records(console, because, told.causes)
        if told.not_tried:
            console.print(f"  and perhaps of {told.not_tried} more, too many to try each")
        if told.closed is not None:
            before, after = (as_time(moment(ms)) or "none" for ms in told.closed)
            console.print(f"  because the watermark passed it: from {before} to {after}")
            self._show_records(console, "moved by", told.moved_by)
        for arc, revision in self._between(told):
            console.print(f"  by way of {arc.name}:", revision_line(arc, _without_epoch(revision)))
        for box, counts in told.ways.items():
            console.print(f"  {box}: {ways_text(counts)}")
        if self.with_inputs:
            self._show_inputs(console, told)

    def _show_inputs(self, console: Console, told: Explanation) -> None:
        for source, sides in told.inputs.items():
            arc = self._arc(source)
            for side, tuples in zip(("before", "after"), sides, strict=True):
                console.print(f"  made of {tuples.height} tuples of {source} {side}:")
                for values in rows.tuples(arc, tuples.sort(arc.event_time, *arc.identity)):
                    shown = zip(values, display_values(arc.fields, values), strict=True)
                    console.print("   ", cell(" ".join(f"{name}={value}" for name, value in shown)))

    def _show_records(
        self, console: Console, what: str, revisions: Mapping[str, pl.DataFrame]
    ) -> None:
        for source, line, origin in self._records(revisions):
            console.print(f"  {what} {source}:", revision_line(self._arc(source), line))
            console.print(f"    {_place_text(origin)}")

    def _records(
        self, revisions: Mapping[str, pl.DataFrame]
    ) -> Iterator[tuple[str, dict[str, Any], Origin | None]]:
        """Yield revisions by source, with the source and the record of each."""
        for source, frame in revisions.items():
            if source not in self._origins:
                kind = self.deployment.plan.topology.sources[source]
                codec = self.deployment.codec(source)
                self._origins[source] = Origins(self.deployment.cluster, kind, codec)
            lines = rows.revisions(self._arc(source), frame)
            origins = self._origins[source].of(frame)
            yield from zip([source] * len(lines), lines, origins, strict=True)

    def _between(self, told: Explanation) -> Iterator[tuple[Arc, dict[str, Any]]]:
        """Yield the revisions on the way, with the epoch of the result."""
        epoch = told.revision["epoch"][0]
        for name, revisions in told.between.items():
            arc = self._arc(name)
            if not name.startswith(HIDDEN_PREFIX):
                for line in rows.revisions(arc, revisions.with_columns(epoch=pl.lit(epoch))):
                    yield arc, line

    def _arc(self, name: str) -> Arc:
        return self.deployment.plan.topology.arcs[name]

    def _gone(self) -> str:
        """Return why a revision can't be explained."""
        kept = {
            as_duration(kept_ms)
            for name in self.deployment.plan.topology.sources_of[self.arc.name]
            for _, kept_ms in [self.deployment.retention(name)]
        }
        return (
            "can't be explained: recomputing does not give these values, since what its sources "
            f"held then is gone; they keep superseded revisions for {' or '.join(sorted(kept))}"
        )


def _without_epoch(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "epoch"}


def _place(origin: Origin | None) -> dict[str, Any]:
    return dict.fromkeys(Origin._fields) if origin is None else origin._asdict()


def _place_text(origin: Origin | None) -> str:
    """Return where a record is."""
    if origin is None:
        return "its record is no longer in the topic"
    at = f"{origin.topic}, partition {origin.partition}, offset {origin.offset}"
    return f"{at}, written {as_time(origin.time_ms)}"
