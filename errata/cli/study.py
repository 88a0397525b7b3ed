"""`errata study`: measures what revisions cost in each mode."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.app import JsonOption, command
from errata.cli.local import pieces_of, play
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.progress import Bars
from errata.client.json_lines import json_lines
from errata.processors.boxes.modes import MODES
from errata.processors.declare.faults import NetworkError
from errata.run.exit_status import complain
from errata.settings.loading import load
from errata.study.cases import CASES, SHORT
from errata.study.measure import of_network, repeated
from errata.study.results import markdown, pictures, tables
from errata.testing import Driver

REPEATS = 3
"""Runs of a case, whose times' medians count."""


@command("study", example="errata study --out docs/study")
def study(
    net: Annotated[
        str | None,
        typer.Argument(
            metavar="NET", show_default=False, help="A network of yours, over files of its sources."
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SOURCE=FILE",
            help="Revisions of a source, as for `errata local`. May be repeated.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="A few cases: some seconds.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", file_okay=False, help="Write the tables, pictures and measurements."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what corrections cost in each mode: in the cases of the study, or in your network.

    Needs no broker: tasks and sweepers run in memory. The cases vary the size of windows, how far
    they overlap, the share of tuples that is corrected, and the aggregates in a chain. They take
    some ten minutes: each runs three times. With --out: study.jsonl, tables.md, and SVG.

    With NET and --input, the network runs over the files once for each mode. A mode that is not
    legal in it is named.
    """
    if bool(net) != bool(inputs):
        raise typer.BadParameter("NET and --input need one another")
    if net and (quick or out):
        raise typer.BadParameter("--quick and --out are of the cases, not of NET")
    if net:
        _of_network(net, inputs or [], as_json=as_json)
        return
    found = []
    cases = SHORT if quick else CASES
    with Bars() as progress:
        bar = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(
                bar, description=f"{case.sweep}: window {case.window:,}, overlap {case.overlap}, "
                f"chain {case.depth}, {case.rate:.2%}, {case.mode}",
            )  # fmt: skip
            found.append(repeated(case, 1 if quick else REPEATS))
            progress.advance(bar)
    shown = tables(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "study.jsonl").write_bytes(json_lines(each.plain() for each in found))
        (out / "tables.md").write_text(markdown(shown), encoding="utf-8")
        for name, picture in pictures(found).items():
            (out / f"{name}.svg").write_text(picture, encoding="utf-8")
    elif as_json or not for_people():
        print_lines(each.plain() for each in found)
    else:
        for table in shown:
            print_table(table.title, table.columns, table.rows)


def _of_network(net: str, inputs: list[str], *, as_json: bool) -> None:
    network, lines = load(net), []
    for mode in MODES:
        with ExitStack() as stack:
            try:
                driver = stack.enter_context(Driver(network, mode=mode))
            except NetworkError as error:
                complain(f"mode {mode} is not legal: {error}")
                continue
            progress = stack.enter_context(Bars())
            pieces = pieces_of(driver, inputs, stack, progress)
            spent = of_network(driver, partial(play, driver, pieces))
        lines += [{"mode": mode, **line} for line in spent]
    if as_json or not for_people():
        print_lines(lines)
        return
    columns = dict.fromkeys(name for line in lines for name in line)
    print_table(
        f"{network.name}: all revisions of its input, in each mode",
        [*columns],
        [[line.get(name) for name in columns] for line in lines],
    )
