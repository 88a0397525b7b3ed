"""The demo's summary at the end."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from errata.demo.audit.verdict import DOWNSTREAM, UPSTREAM, Verdict
from errata.demo.watch import Watch
from errata.processors.wire.report import CountKey
from errata.processors.wire.task_id import ScopeId

_TAPE = {
    "inserted": "trades",
    "late": "of them late",
    "replaced": "replaced",
    "unchanged": "replaced by the same",
    "deleted": "deleted",
    "duplicates": "duplicates",
    "disagreed": "told another original",
    "dead_letters": "dead letters",
}
_MODES = {
    "closed": "windows closed",
    "revised": "results revised after that",
    "emitted": "revisions emitted",
    "requests": "requests sent",
    "replayed": "tuples replayed",
    "fetched": "results fetched",
    "fallbacks": "fall-backs to replay",
}


def print_summary(console: Console, watch: Watch, verdict: Verdict) -> None:
    """Print the input, the refusals, the cost of each mode, and the audit's verdict."""
    refused = [f"{op} {key}: {reason}" for reason, op, key in verdict.refused.values()]
    if refused:
        console.print("\nwhat the tape could not be corrected by, kept as dead letters:")
        console.print(Columns(sorted(refused), padding=(0, 3)))
    counts = watch.counts(lambda scope: scope.is_ingest)
    tape = _table("the tape", "", "records")
    for name, words in _TAPE.items():
        tape.add_row(words, f"{counts.get(name, 0):,}")
    for name, count in counts.items():
        if reason := CountKey.parse(name).reason:
            tape.add_row(f"  {reason}", f"{count:,}")
    console.print(tape)
    modes = _table("what each mode did", "", "upstream", "downstream")
    told = [_mode(watch, scope, verdict.revisions[arc]) for scope, arc in _ARCS.items()]
    for name, words in _MODES.items():
        modes.add_row(words, *(f"{own.get(name, 0):,}" for own in told))
    console.print(modes)
    console.print("\n".join(verdict.lines()), markup=False)


_ARCS = {"upstream": UPSTREAM, "downstream": DOWNSTREAM}


def _mode(watch: Watch, scope: str, emitted: int) -> dict[str, int]:
    """Return what the tasks of a mode reported, and how many revisions the audit found."""
    counts = watch.counts(ScopeId.of_boxes(scope).__eq__)
    return {CountKey.parse(name).what: n for name, n in counts.items()} | {"emitted": emitted}


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, justify="right" if name else "left")
    return table
