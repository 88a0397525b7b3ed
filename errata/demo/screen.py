"""The demo's output: a live table of corrections, and the summary at the end.

Without a terminal the corrections are plain lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from errata.demo.audit.verdict import DOWNSTREAM, UPSTREAM, Verdict
from errata.demo.watch import Correction, Value, Watch
from errata.processors.wire.report import CountKey
from errata.processors.wire.task_id import ScopeId

SHOWN = 14
"""Number of corrections in the live table, the newest last."""
WIDTH = 110
"""Width in columns without a terminal."""
_YEAR = 2026
_THOUSAND = Decimal("0.001")
_ARROW = " → "
_COLUMNS = {
    "window from": (12, 20),
    "product": (16, 24),
    "traded (millions)": (17, 28),
    "trades": (7, 12),
    "largest": (7, 20),
    "because of": (8, 0),
}
"""Minimal width on a terminal, and width without one."""


class Screen:
    """Shows the progress of the tape, and results as they are corrected.

    Args:
        console: The console; by default standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = WIDTH
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._rows: deque[list[str]] = deque(maxlen=SHOWN)
        self._progress = ""

    def __enter__(self) -> Self:
        """Start the live table."""
        if self.console.is_terminal:
            self._live.start()
        else:
            self._say_cells(list(_COLUMNS))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last state of the table on the screen."""
        if self.console.is_terminal:
            self._live.stop()
            self.console.print(self._table())

    def say(self, line: str) -> None:
        """Print one line."""
        self.console.print(line, markup=False, soft_wrap=True)

    def show(self, progress: str, corrections: Sequence[Correction]) -> None:
        """Show the progress, and the corrections since the last call."""
        new_rows = [row(correction) for correction in corrections]
        self._rows.extend(new_rows)
        if self.console.is_terminal:
            self._progress = progress
            self._live.update(self._table(), refresh=True)
            return
        for cells in new_rows:
            self._say_cells(cells)

    def _say_cells(self, cells: list[str]) -> None:
        widths = [width for _, width in _COLUMNS.values()]
        self.say("".join(map(str.ljust, cells, widths)).rstrip())

    def _table(self) -> Table:
        title = "results as they are corrected"
        table = Table(title=title, caption=self._progress, expand=True, box=SIMPLE_HEAD)
        for name, (least, _) in _COLUMNS.items():
            table.add_column(name, no_wrap=True, min_width=least)
        for cells in self._rows:
            table.add_row(*(Text(c, style="bold" if _ARROW in c else "") for c in cells))
        return table


def row(correction: Correction) -> list[str]:
    """Return a correction as cells: window, product, three results, and the cause.

    For a daily bar the first result is its 99th percentile instead of the traded amount.
    """
    result, causes = correction.result, correction.causes
    is_bar = "p99" in (correction.before or {}) or "p99" in (correction.after or {})
    traded = "p99 " + change_text(*correction.sides("p99")) if is_bar else None
    cause = " ".join(causes[0]) if causes else ""
    more = f" +{len(causes) - 1}" if len(causes) > 1 else ""
    return [
        _day(result["window_start"]) if is_bar else _clock(result["window_start"]),
        f"{result['product'].removeprefix('NA/CDS ')} {result['currency']}",
        traded or change_text(*correction.sides("traded")),
        change_text(*correction.sides("trades")),
        change_text(*correction.sides("high" if is_bar else "largest")),
        cause + more,
    ]


def _clock(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%d %b %H:%M}" if at.year == _YEAR else f"{at:%d %b %Y %H:%M}"


def _day(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%d %b}, a day" if at.year == _YEAR else f"{at:%d %b %Y}, a day"


def change_text(before: Value, after: Value) -> str:
    """Return a value, or its change: counts unchanged, amounts in millions.

    Example:
        >>> change_text(Decimal("1500000"), Decimal("1234567"))
        '1.5 → 1.235'
        >>> change_text(3, 3), change_text(3, None)
        ('3', '3 → -')
    """
    texts = [_amount(value) for value in (before, after)]
    return texts[0] if before == after else _ARROW.join(texts)


def _amount(value: Value) -> str:
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        return f"{value.scaleb(-6).quantize(_THOUSAND).normalize():,f}"
    return "-" if value is None else f"{value:,}"


_TAPE = {
    "inserted": "trades",
    "late": "of them late",
    "replaced": "replaced",
    "unchanged": "replaced by the same",
    "deleted": "deleted",
    "duplicates": "duplicates",
    "disagreed": "with another original",
    "dead_letters": "dead letters",
}
_MODES = {
    "closed": "windows closed",
    "revised": "results revised later",
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
        console.print("\nrefused revisions, kept as dead letters:")
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
    counts_by_mode = [_mode(watch, scope, verdict.revisions[arc]) for scope, arc in _ARCS.items()]
    for name, words in _MODES.items():
        modes.add_row(words, *(f"{mode_counts.get(name, 0):,}" for mode_counts in counts_by_mode))
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
