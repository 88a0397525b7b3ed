"""wm(e): event time up to which some sources had been seen in epochs up to e.

It is the minimum of the watermarks in the reports of ingest tasks, without idle partitions, and it
never falls. It depends on reports only: every reader computes the same value at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from errata.processors.plan.plan import Plan
from errata.processors.plan.scope import ingest_scope
from errata.processors.wire.report import IDLE, NEVER, Floor, Report


@dataclass(frozen=True)
class Line:
    """The watermark of some sources as a step function of the epoch.

    Args:
        epochs: Epochs at which it rises, in order.
        values: Event times to which it rises, in order.
    """

    epochs: list[int]
    values: list[int]

    def at(self, epoch: int) -> int:
        """Return wm(epoch), `NEVER` before the first."""
        count = bisect_right(self.epochs, epoch)
        return self.values[count - 1] if count else NEVER

    def first(self, at_least: int, *, after: int) -> int | None:
        """Return the first epoch past `after` with a watermark of `at_least` or more, if known."""
        place = max(bisect_right(self.values, at_least - 1), bisect_right(self.epochs, after))
        return self.epochs[place] if place < len(self.epochs) else None


class Watermarks:
    """The watermarks of a network.

    Args:
        plan: Gives the sources and their tasks.
        of: Returns the newest report of a task.
    """

    def __init__(self, plan: Plan, of: Callable[[str], Report]) -> None:
        self.plan, self.of = plan, of
        self._lines: dict[tuple[str, ...], Line] = {}

    def line(self, sources: tuple[str, ...]) -> Line:
        """Return the watermark of some sources."""
        if sources not in self._lines:
            self._lines[sources] = self._made(sources)
        return self._lines[sources]

    def changed(self, source: str) -> None:
        """Drop cached watermarks: an ingest task of this source has reported."""
        self._lines = {own: line for own, line in self._lines.items() if source not in own}

    def _made(self, sources: tuple[str, ...]) -> Line:
        reports = [self.of(t) for s in sources for t in self.plan.tasks(ingest_scope(s))]
        floors = [(f.epoch, f.watermark) for r in reports for f in r.floors if f.sources == sources]
        events = sorted(
            (epoch, number, watermark)
            for number, report in enumerate(reports)
            for epoch, watermark in report.watermarks
        )
        now = [NEVER] * len(reports)
        found = dict.fromkeys(sorted(epoch for epoch, _ in floors), NEVER)
        for epoch, number, watermark in events:
            now[number] = watermark
            found[epoch] = combined(now)  # an epoch's last value wins: its events are simultaneous
        for epoch, watermark in floors:
            found[epoch] = max(found[epoch], watermark)
        line, highest = Line([], []), NEVER
        for epoch in sorted(found):
            if found[epoch] > highest:
                highest = found[epoch]
                line.epochs.append(epoch)
                line.values.append(highest)
        return line

    def floors(self, source: str, *, upto: int) -> tuple[Floor, ...]:
        """Return wm(upto) of every set of sources that some scope reads and that has this one.

        A report that drops older pairs must hold it: the minimum of the remaining pairs may be
        lower, where an idle partition becomes active again.
        """
        behind = {self.plan.sources_behind(scope) for scope in self.plan.scopes}
        return tuple(
            Floor(sources, upto, self.line(sources).at(upto))
            for sources in sorted(behind)
            if source in sources
        )


def combined(watermarks: Iterable[int]) -> int:
    """Return the minimum of watermarks without idle ones; `NEVER` if all are idle.

    Example:
        >>> combined([5, IDLE, 3]), combined([IDLE, IDLE]) == NEVER
        (3, True)
    """
    known = [w for w in watermarks if w != IDLE]
    return min(known, default=NEVER)
