"""The bugs to plant: one line each, spread over the main path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Args:
        name: What is wrong.
        file: Where.
        old: The line, or the part of it, that is changed; unique in the file.
        new: What it becomes.
        network: The networks of the laws (`tests/laws/networks.py`) on which it shows.
    """

    name: str
    file: str
    old: str
    new: str
    network: str = "apart"


MUTANTS = [
    Mutant(
        "a window closes one watermark late",
        "processors/boxes/aggregate.py",
        "closes = near[START] + self.window.size_ms <= wm\n",
        "closes = near[START] + self.window.size_ms < wm\n",
    ),
    Mutant(
        "a maximum that is lowered while its window is open is not replayed",
        "processors/boxes/aggregate.py",
        "closing, now = self._with_known(closing, right), self._with_known(now, right)",
        "closing, now = closing, self._with_known(now, right)",
    ),
    Mutant(
        "a replay through an aggregate does not reach back",
        "processors/replay.py",
        '(pl.col(START) - self.extent_ms).alias("from_ms")',
        'pl.col(START).alias("from_ms")',
        network="chain-False",
    ),
    Mutant(
        "resume where reading was, not at the oldest unprocessed record",
        "processors/arc_topic.py",
        "return min(oldest, default=self.reader.position(self.place))",
        "return self.reader.position(self.place)",
    ),
    Mutant(
        "a new life keeps its predecessor's number",
        "processors/task.py",
        "claimed = replace(old, attempt=old.attempt + 1, plan=fingerprint)",
        "claimed = replace(old, attempt=max(old.attempt, 1), plan=fingerprint)",
    ),
    Mutant(
        "a batch forgets that an identity was alive before it",
        "processors/taking.py",
        'alive.shift(1).forward_fill().over(KEY).fill_null(pl.col("held")).alias("alive")',
        'alive.shift(1).forward_fill().over(KEY).fill_null(False).alias("alive")',
    ),
    Mutant(
        "a tuple that moves stays in its old partition as well",
        "processors/intake.py",
        'moved = (revisions["op"] == frames.REPLACE) & (before != after)',
        'moved = (revisions["op"] == frames.REPLACE) & (before > after)',
    ),
    Mutant(
        "the watermark is the fastest partition's",
        "processors/view.py",
        "return min(known, default=NEVER)",
        "return max(known, default=NEVER)",
    ),
    Mutant(
        "a lone writer's records are believed unreported",
        "processors/view.py",
        'return revisions.filter(pl.col("epoch") <= last[0])',
        "return revisions",
    ),
    Mutant(
        "what was emitted in the same transaction is forgotten",
        "processors/scope.py",
        "told = overlay(tuples, box.stored, own.get(name, []))",
        "told = overlay(tuples, box.stored, [])",
    ),
    Mutant(
        "a copy is complete where some writers have reported",
        "processors/view.py",
        "return min(self.frontier(writer) for writer in writers), end",
        "return max(self.frontier(writer) for writer in writers), end",
    ),
    Mutant(
        "the largest value's ties are not counted down",
        "processors/aggregates/max.py",
        'states["ties"] - self._ties(groups, leaving, largest)',
        'states["ties"] - self._ties(groups, leaving, largest) * 0',
    ),
]
