"""`errata local`: runs a network over files without a broker, with the same code as live."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from typing import IO, Annotated

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, moment_ms
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.progress import Bars
from errata.client.input_file import CsvColumns, open_input, read_input
from errata.client.recorded import Recorded, recorded
from errata.client.texts import display_values
from errata.observe.diagnosis import silent_filters, taken_for_ms
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.declarations import Source
from errata.processors.declare.network import Network
from errata.processors.tasks.on_error import DEAD_LETTER, ON_ERROR
from errata.run.exit_status import complain
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import read_settings
from errata.testing import Driver, UnknownNameError
from errata.topics.cluster import Cluster
from errata.topics.kafka import KafkaCluster
from errata.topics.registry_server import registry

OpColumnOption = Annotated[
    str | None,
    typer.Option(
        "--op-column",
        metavar="COLUMN",
        help="The column of CSV with the op: insert, replace or delete, or as I, U, D.",
    ),
]
EpochColumnOption = Annotated[
    str | None,
    typer.Option(
        "--epoch-column", metavar="COLUMN", help="An epoch ends where this column of CSV changes."
    ),
]
RECORDS_AN_EPOCH = 10_000
"""Records of an epoch when a topic is replayed."""


class NothingTakenError(ErrataError):
    """Every record of the input was refused."""


class OutputError(ErrataError):
    """Lines of several arcs could not be distinguished."""


@command(
    "local",
    example="errata local tape.py --input trades=trades.jsonl --table totals --revisions totals",
)
def local(
    net: NetworkArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SOURCE=FILE",
            help="Revisions of a source: JSON lines or CSV, gzipped or not; - is standard input. "
            "May be repeated; of several for one source each begins a new epoch.",
        ),
    ] = None,
    op_column: OpColumnOption = None,
    epoch_column: EpochColumnOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Read the sources' topics from this time on, instead of files.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Read the sources' topics up to this time, exclusive."
        ),
    ] = None,
    revisions: Annotated[
        list[str] | None,
        typer.Option(metavar="ARC", help="Print an arc's revisions. May be repeated."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="ARC", help="Print an arc's final content. May be repeated."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="Mode of every aggregate: upstream, downstream or adaptive.")
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            metavar=" | ".join(ON_ERROR),
            help="What happens to a tuple for which a function of yours raises.",
        ),
    ] = DEAD_LETTER,
    as_json: JsonOption = False,
) -> None:
    """Run a network over files, without a broker, with the same code as live.

    JSON lines: {"op": "insert", "after": {...}}, {"op": "replace", "before": {...}, "after":
    {...}}, {"op": "delete", "before": {...}}, and {"epoch": true}, which closes an epoch; or plain
    objects, which are inserts. The n-th epochs of the sources are one epoch; a file without such
    lines is one. The end of the input closes every window.

    CSV: a header with op and before.x, after.x; or op and plain columns, with originals in old_x;
    or plain columns alone, which are inserts. An empty cell is null. An epoch ends where
    --epoch-column changes; without it, where an identity comes again, the first thousand times.

    With --from, --until or both, the input is what the topics of all sources recorded in that time,
    in their own envelopes and formats, on the cluster of the settings. Times are ISO-8601 (UTC if
    they have no zone). Nothing is written to the cluster.

    Prints JSON lines (tables on a terminal, unless --json): first the revisions with their epoch,
    then the tuples of the tables. If more than one arc is printed, each line names its arc as
    "arc". Refused records are counted on standard error.
    """
    people = for_people() and not as_json
    replays = since is not None or until is not None
    if replays == bool(inputs):
        raise typer.BadParameter("needs --input, or --from and --until")
    with ExitStack() as stack:
        network, live = load(net), None
        if replays:
            place = read_settings()
            cluster = stack.enter_context(closing(KafkaCluster(place.kafka)))
            live = registry(cluster, place.registry)
            network = resolve(network, live)
        driver = stack.enter_context(Driver(network, mode=mode, live=live, on_error=on_error))
        _check_outputs(driver, revisions or [], table or [])
        progress = stack.enter_context(Bars())
        if replays:
            hint = "--from and --until"
            times = [None if t is None else moment_ms(t, hint=hint) for t in (since, until)]
            replay(driver, cluster, network, from_ms=times[0], until_ms=times[1])
        else:
            columns = CsvColumns(op_column, epoch_column)
            play(driver, pieces_of(driver, inputs or (), stack, progress, columns))
        progress.stop()
        refused = _print_refused(driver)
        for name, source in driver.plan.topology.sources.items():
            if note := taken_for_ms(source, driver.ingests[name].report.watermark):
                complain(note)
        for note in silent_filters(driver.plan, driver.counts().values()):
            complain(note)
        several = len({*(revisions or ()), *(table or ())}) > 1
        for arc in dict.fromkeys(revisions or ()):
            _print_revisions(driver, arc, people=people, several=several)
        for arc in dict.fromkeys(table or ()):
            _print_content(driver, arc, people=people, several=several)
        taken = sum(counts.get("inserted", 0) + counts.get("deleted", 0) + counts.get("replaced", 0)
                    for counts in driver.counts().values())  # fmt: skip
        if not (revisions or table):
            names = ", ".join(driver.plan.boxes) or ", ".join(driver.plan.topology.sources)
            complain(
                f"{taken} revisions were taken in, and nothing is printed: ask for an arc with "
                f"--table or --revisions; there are {names}"
            )
        if refused and not taken:
            raise NothingTakenError("nothing was taken in: every record was refused")


def pieces_of(
    driver: Driver,
    inputs: Iterable[str],
    stack: ExitStack,
    progress: Bars,
    columns: CsvColumns | None = None,
) -> list[tuple[str, Iterator[list[bytes] | None]]]:
    """Return what `play` sends a driver, from ``SOURCE=FILE`` each; reading shows its progress.

    Args:
        driver: The driver.
        inputs: Sources and files.
        stack: Closes the files.
        progress: Gets a bar for each file.
        columns: Columns of CSV that are no fields.

    Returns:
        By source, the pieces of its files in turn; a file ends an epoch.
    """
    pieces = dict[str, Iterator[list[bytes] | None]]()
    for text in inputs:
        source, file = source_and_file(text)
        _check_known(driver, "source", source, driver.plan.topology.sources)
        stream, arc = (
            stack.enter_context(open_input(file)),
            driver.plan.topology.sources[source].arc,
        )
        own = tracked(
            read_input(stream, file=file, arc=arc, columns=columns), stream, progress, file
        )
        pieces[source] = chain(pieces[source], [None], own) if source in pieces else own
    return list(pieces.items())


def play(driver: Driver, inputs: Sequence[tuple[str, Iterator[list[bytes] | None]]]) -> None:
    """Send a driver its inputs, the n-th epochs of all as one, and declare the end.

    Args:
        driver: The driver.
        inputs: By source, pieces of lines, and None at the end of each epoch.
    """
    left = list(inputs)
    while left:
        some = False
        for source, pieces in list(left):
            for piece in pieces:
                some = True
                if piece is None:
                    break
                deque(map(partial(driver.send_raw, source), piece), maxlen=0)
            else:
                left.remove((source, pieces))
        if some:
            driver.close_epoch()
    driver.end()


def replay(
    driver: Driver,
    cluster: Cluster,
    network: Network,
    *,
    from_ms: int | None,
    until_ms: int | None,
) -> None:
    """Send a driver the recorded topics of its sources, one epoch for each piece, and the end."""
    left: dict[str, Iterator[Recorded]] = {}
    for name in driver.plan.topology.sources:
        declaration = network.declarations[name]
        assert isinstance(declaration, Source)
        pieces = recorded(cluster, declaration.topic, from_ms=from_ms, until_ms=until_ms)
        left[name] = chain.from_iterable(map(_cut, pieces))
    while left:
        for name, pieces in list(left.items()):
            piece = next(pieces, None)
            if piece is None:
                del left[name]
            else:
                keys, values = piece
                deque(map(partial(driver.send_raw, name), values, keys), maxlen=0)
        driver.close_epoch()
    driver.end()


def _cut(piece: Recorded) -> Iterator[Recorded]:
    keys, values = piece
    for start in range(0, len(values), RECORDS_AN_EPOCH):
        part = slice(start, start + RECORDS_AN_EPOCH)
        yield keys[part], values[part]


def source_and_file(text: str) -> tuple[str, str]:
    """Return the source and the file of an option ``SOURCE=FILE``."""
    source, equals, file = text.partition("=")
    if not (source and equals and file):
        raise typer.BadParameter(f"{text!r} needs the form SOURCE=FILE", param_hint="--input")
    return source, file


def _check_outputs(driver: Driver, revisions: list[str], table: list[str]) -> None:
    """Refuse outputs that can't be printed, before anything runs."""
    arcs = driver.plan.topology.arcs
    for arc in revisions + table:
        _check_known(driver, "arc", arc, arcs)
    if len({*revisions, *table}) > 1:
        for arc in table:
            if "arc" in arcs[arc].fields:
                raise OutputError(
                    f"arc {arc!r} has a field 'arc', but lines of several arcs need this name for "
                    "their arc; print one arc at a time"
                )


def _check_known(driver: Driver, what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UnknownNameError(
            f"network {driver.plan.network!r} has no {what} {name!r}: it has {', '.join(known)}"
        )


# -------------------------------------------------------------------------------- progress


def tracked(
    pieces: Iterator[list[bytes] | None], stream: IO[bytes], progress: Bars, name: str
) -> Iterator[list[bytes] | None]:
    """Yield the pieces of a file, and show the progress of reading."""
    total = os.fstat(stream.fileno()).st_size if stream.seekable() else None
    task = progress.add_task(name, total=total)
    for piece in pieces:
        if total is not None:
            progress.update(task, completed=stream.tell())
        yield piece


# -------------------------------------------------------------------------------- output


def _print_refused(driver: Driver) -> int:
    """Print the dead letters on standard error: a line for each reason, with the first one.

    Returns:
        Their number.
    """
    dead_letters = driver.dead_letters()
    for reason, count in Counter(dead_letter.reason for dead_letter in dead_letters).items():
        first = next(dead_letter for dead_letter in dead_letters if dead_letter.reason == reason)
        place = f"record {first.offset + 1} of {first.topic.removeprefix('source.')}: "
        place = "" if first.is_of_box else place
        complain(f"{count} refused, {reason}; the first is {place}{first.detail}")
    return len(dead_letters)


def _print_revisions(driver: Driver, arc: str, *, people: bool, several: bool) -> None:
    revisions = driver.revisions(arc)
    if not people:
        print_lines({"arc": arc, **line} if several else line for line in revisions)
        return
    kind = driver.plan.topology.arcs[arc]
    sides = [
        [line["epoch"], line["op"], side, *display_values(kind.fields, line[side])]
        for line in revisions
        for side in ("before", "after")
        if side in line
    ]
    print_table(f"revisions of {arc}", ["epoch", "op", "", *kind.visible], sides)


def _print_content(driver: Driver, arc: str, *, people: bool, several: bool) -> None:
    tuples = driver.table(arc)
    if not people:
        print_lines({"arc": arc, **row} if several else row for row in tuples)
        return
    kind = driver.plan.topology.arcs[arc]
    print_table(arc, kind.visible, [display_values(kind.fields, row) for row in tuples])
