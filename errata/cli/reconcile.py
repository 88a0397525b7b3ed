"""`errata reconcile`: audits arcs on Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import cell, for_people, print_lines, print_table
from errata.cli.progress import Bars, waiting
from errata.cli.spark import ConfOption, MasterOption, spark_settings
from errata.client import rows
from errata.client.texts import display_values
from errata.run.exit_status import complain
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.settings.loading import load
from errata.settings.place import read_settings
from errata.spark_jobs.as_of import Auditor, NotAuditableError, Reports
from errata.spark_jobs.reading import Arcs
from errata.spark_jobs.reconcile import Audit, Finding
from errata.spark_jobs.session import check_packages, open_session, pickle_by_value

_STATUS = {"insert": "missing", "delete": "unexpected", "replace": "different"}
"""What is wrong with a tuple, by the operation that would correct it."""
_COLUMNS = ("arc", "epoch", "tuples", "missing", "unexpected", "different", "left out", "status")


@command("reconcile", example="errata reconcile tape.py --arc totals --master local[4]")
def reconcile(
    net: NetworkArgument,
    arc: Annotated[
        list[str] | None,
        typer.Option(
            help="An arc that a box writes to a topic; may be repeated. By default all.",
            autocompletion=arc_names,
        ),
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="EPOCH", help="Compare as of this epoch; else the last complete one."
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show at most N differences of each arc.")
    ] = 10,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute arcs from the connection points upstream of them, on Spark, and compare.

    Recomputes each arc as of an epoch from the nearest connection points upstream, as of the same
    epoch, and compares it with the arc's content: this finds records that were lost, or altered by
    hand. The network may run or not. Sources are not audited, since they are the input. Values have
    to be equal, floats within 1e-9 of the larger one.

    Results of tuples that retention may have removed are left out. Exit status 0 if there is no
    difference, 1 if there is one or an arc could not be audited.
    """
    settings = spark_settings(conf)
    check_packages()
    with deployed(net) as deployment:
        place, plan = read_settings(), deployment.plan
        view = Reports(deployment.cluster, plan=plan)
        view.catch_up()
        auditor = Auditor(view, place.compaction_lag_ms)
        exclusions = auditor.arcs()
        wanted = list(
            map(auditor.require, dict.fromkeys(arc or (a for a in exclusions if not exclusions[a])))
        )
        for name in exclusions if arc is None else ():
            if exclusions[name]:
                complain(f"left out: {exclusions[name]}")
        if not wanted:
            raise NotAuditableError(
                f"network {plan.network!r} has no arc that can be audited: a box writes its arc to "
                "a topic only if another scope reads it, or with keep=; give an arc keep="
            )
        if as_of is not None:  # report a wrong epoch before Spark is started
            for name in wanted:
                auditor.as_of(name, requested=as_of)
        deployment.require_order()
        read = Arcs.of(plan, place.kafka, deployment.registry)
        pickle_by_value(load(net))
        home = place.state / plan.network / plan.deployment.id
        session = open_session(
            master=master,
            settings=settings,
            name=f"errata reconcile {plan.network}",
            log=home / "spark.reconcile.log",
        )
        try:
            audit = Audit(auditor, read, session)
            findings = _audited(audit, wanted, as_of=as_of, sample=sample)
            wrong = _print_findings(
                plan.network, plan.topology.arcs, findings, as_json=as_json or not for_people()
            )
        finally:
            session.stop()
    if wrong:
        complain(
            f"{len(wrong)} of {len(wanted)} arcs differ from their recomputed content: "
            f"{', '.join(wrong)}"
        )
        raise typer.Exit(1)


def _audited(audit: Audit, arcs: list[str], *, as_of: int | None, sample: int) -> Iterator[Finding]:
    """Yield the findings, with progress on standard error."""
    with Bars() as bars:
        task = bars.add_task("", total=len(arcs))
        for arc in arcs:
            bars.update(task, description=arc)
            with nullcontext() if sys.stderr.isatty() else waiting(f"recomputing {arc}"):
                finding = audit.of(arc, as_of=as_of, sample=sample)
            yield finding
            bars.advance(task)


def _print_findings(
    network: str, arcs: dict[str, Arc], findings: Iterator[Finding], *, as_json: bool
) -> list[str]:
    """Print findings; return the arcs that differ."""
    if as_json:
        wrong = []
        for finding in findings:  # print each one as it comes
            print_lines([as_data(arcs[finding.arc], finding)])
            wrong += [finding.arc] if finding.differences else []
        return wrong
    known = list(findings)
    print_table(f"{network}: reconciled", _COLUMNS, map(_row, known))
    console = Console(soft_wrap=True, highlight=False)
    for finding in known:
        for sample in samples(arcs[finding.arc], finding):
            console.print(difference_line(arcs[finding.arc], finding.arc, sample))
    return [finding.arc for finding in known if finding.differences]


def _row(finding: Finding) -> tuple[object, ...]:
    return (
        finding.arc,
        finding.epoch if finding.epoch >= 0 else None,
        finding.tuples,
        finding.missing,
        finding.unexpected,
        finding.different,
        finding.left_out,
        _status(finding),
    )


def _status(finding: Finding) -> str:
    return "differs" if finding.differences else "ok"


def as_data(kind: Arc, finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data for programs."""
    plain = {name: value for name, value in vars(finding).items() if name != "samples"}
    return plain | {"status": _status(finding), "samples": list(samples(kind, finding))}


def samples(kind: Arc, finding: Finding) -> Iterator[dict[str, Any]]:
    """Yield differences: status, identity, and by field the arc's value and the recomputed one.

    If one side lacks the tuple, all fields are listed, with None for that side. The identity is
    empty if the arc has no visible one.
    """
    sides = [
        rows.tuples(kind, finding.samples, prefix=side) for side in (frames.BEFORE, frames.AFTER)
    ]
    for op, actual, recomputed in zip(finding.samples["op"].to_list(), *sides, strict=True):
        name = frames.OPS[op]
        shown_side = actual if name != "insert" else recomputed
        yield {
            "status": _STATUS[name],
            "identity": {
                field: shown_side[field] for field in kind.identity if field in shown_side
            },
            "fields": {
                field: {"arc": actual[field], "recomputed": recomputed[field]}
                for field in shown_side
                if field not in kind.identity
                and (name != "replace" or not _equal(actual[field], recomputed[field]))
            },
        }


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # NaN equals NaN


def difference_line(kind: Arc, arc: str, sample: dict[str, Any]) -> Text:
    """Return a difference as a line for people.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> kind = Arc("a", {"k": FieldType("string"), "n": FieldType("long")}, ("k",), "k", ())
        >>> fields = {"n": {"arc": 5, "recomputed": 6}}
        >>> sample = {"status": "different", "identity": {"k": "x"}, "fields": fields}
        >>> print(difference_line(kind, "sums", sample))
        sums different k=x  n: the arc has 5, recomputed 6
    """
    identity = sample["identity"]
    names = zip(identity, display_values(kind.fields, identity), strict=True)
    line = Text(f"{arc} ", style="bold")
    line.append(f"{sample['status']} ", style="red")
    line.append_text(cell(" ".join(f"{name}={value}" for name, value in names)))
    line.append("  ")
    line.append_text(cell("; ".join(_pairs(kind, sample))))
    return line


def _pairs(kind: Arc, sample: dict[str, Any]) -> Iterator[str]:
    fields = sample["fields"]
    actual, recomputed = (
        display_values(kind.fields, {name: pair[side] for name, pair in fields.items()})
        for side in ("arc", "recomputed")
    )
    for name, one, other in zip(fields, actual, recomputed, strict=True):
        if sample["status"] == "different":
            yield f"{name}: the arc has {_value(one)}, recomputed {_value(other)}"
        else:
            yield f"{name} {_value(other if sample['status'] == 'missing' else one)}"


def _value(value: object) -> str:
    return "null" if value is None else str(value)
