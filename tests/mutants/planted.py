"""The bugs to plant: one line each, spread over the main path."""

from __future__ import annotations

from dataclasses import dataclass

RANDOM = "random"
"""The random networks, one after another (`tests/laws/random_networks.py`)."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Args:
        name: What is wrong.
        file: Where.
        old: The line, or the part of it, that is changed; unique in the file.
        new: What it becomes.
        network: The networks of the laws (`tests/laws/networks.py`) on which it shows, or `RANDOM`.
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
        "return (ends <= wm) | self.on_update",
        "return (ends < wm) | self.on_update",
    ),
    Mutant(
        "a maximum that is lowered while its window is open is not replayed",
        "processors/boxes/aggregate.py",
        "lowered = after.filter(~self.exact(after)).select(self.keys)",
        "lowered = after.filter(~self.exact(after) & was_told).select(self.keys)",
    ),
    Mutant(
        "a replay through an aggregate does not reach back",
        "processors/replay.py",
        'pl.col("from_ms").clip(lower_bound=extent_ms - FOREVER_MS) - extent_ms',
        'pl.col("from_ms").clip(lower_bound=extent_ms - FOREVER_MS)',
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
        "claimed = replace(old, attempt=old.attempt + 1, ",
        "claimed = replace(old, attempt=max(old.attempt, 1), ",
    ),
    Mutant(
        "a batch forgets that an identity was alive before it",
        "processors/taking.py",
        'alive.shift(1).forward_fill().over(KEY).fill_null(pl.col("held")).alias("alive")',
        'alive.shift(1).forward_fill().over(KEY).fill_null(False).alias("alive")',
    ),
    Mutant(
        "a tuple that moves stays in its old partition as well",
        "processors/spread.py",
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
        "return overlay(tuples, self.aggregates[name].stored, own.get(name, []))",
        "return overlay(tuples, self.aggregates[name].stored, [])",
    ),
    Mutant(
        "a copy is complete where some writers have reported",
        "processors/view.py",
        "return min(self.frontier(writer) for writer in writers), end",
        "return max(self.frontier(writer) for writer in writers), end",
    ),
    # ------------------------------------------------------------ stateless boxes, exchanges
    Mutant(
        "a filter passes what its predicate knows nothing of",
        "processors/boxes/where.py",
        "passed = self.predicate.evaluate(tuples).fill_null(False)",
        "passed = self.predicate.evaluate(tuples).fill_null(True)",
        network=RANDOM,
    ),
    Mutant(
        "a tuple that a map gives no event time any more stays",
        "processors/boxes/map.py",
        "had &= before[self.arc.event_time].is_not_null()",
        "had &= after[self.arc.event_time].is_not_null()",
        network=RANDOM,
    ),
    Mutant(
        "an output of a route leaves out what an earlier one knows nothing of",
        "processors/boxes/where.py",
        "passed &= ~other.evaluate(tuples).fill_null(False)",
        "passed &= ~other.evaluate(tuples).fill_null(True)",
        network=RANDOM,
    ),
    Mutant(
        "a union deletes and inserts what left one input for another",
        "processors/boxes/union.py",
        "return frames.net(pl.concat(found), self.arc.identity, list(self.arc.fields))",
        "return pl.concat(found)",
        network=RANDOM,
    ),
    Mutant(
        "what comes through an exchange is not netted",
        "processors/scope.py",
        "return frames.net(plain, arc.identity, list(arc.fields))",
        "return plain",
        network=RANDOM,
    ),
    Mutant(
        "a replay through an exchange asks one partition",
        "processors/modes.py",
        "everywhere |= arc.exchange",
        "everywhere |= False",
        network=RANDOM,
    ),
    # ------------------------------------------------------------ windows
    Mutant(
        "windows start at multiples of their slide, whatever their origin",
        "processors/windows.py",
        "return times - (times - self.origin_ms) % self.slide_ms",
        "return times - times % self.slide_ms",
        network=RANDOM,
    ),
    Mutant(
        "an hour that clocks show twice goes into windows twice",
        "processors/windows.py",
        "times = clocks.reached(times)",
        "times = clocks.walls(times)",
        network=RANDOM,
    ),
    Mutant(
        "a revision does not reach the last sliding window that holds its tuple",
        "processors/boxes/sliding.py",
        "line.runs(spread, 0, self.window.extent_ms)",
        "line.runs(spread, 0, self.window.extent_ms - 1)",
        network=RANDOM,
    ),
    Mutant(
        "a whole history is replayed from 1970 on",
        "processors/boxes/aggregate.py",
        "return Need(INPUTS, self._ranges(keys, -ends, ends))",
        "return Need(INPUTS, self._ranges(keys, ends * 0, ends))",
        network=RANDOM,
    ),
    Mutant(
        "a window that told its updates tells its result again as it closes",
        "processors/boxes/aggregate.py",
        'closes = ends.is_between(wm_before, wm, closed="right") & (not self.on_update)',
        'closes = ends.is_between(wm_before, wm, closed="right")',
        network=RANDOM,
    ),
    # ------------------------------------------------------------ functions
    Mutant(
        "the largest value's ties are not counted down",
        "processors/aggregates/extreme.py",
        "np.full(len(group), sign),",
        "np.full(len(group), max(sign, 0)),",
    ),
    Mutant(
        "averages of decimals are rounded down",
        "processors/aggregates/avg.py",
        "return fitting(down + up.cast(pl.Int128), self.result.precision)",
        "return fitting(down + up.cast(pl.Int128) * 0, self.result.precision)",
    ),
    Mutant(
        "first goes by event time, whatever it is to go by",
        "processors/aggregate_results.py",
        "self._ordering(self.order_by, visible(self.above)) if self.order_by else by_time",
        "self._ordering(self.order_by, visible(self.above)) and by_time",
        network=RANDOM,
    ),
    Mutant(
        "the last of many is the first in no order but the first key's",
        "processors/aggregates/first.py",
        "return [Key(key.type, not key.largest) for key in order]",
        "return [Key(k.type, (not k.largest) ^ (n > 0)) for n, k in enumerate(order)]",
        network=RANDOM,
    ),
    Mutant(
        "the square of what leaves is not taken off",
        "processors/aggregates/double_variance.py",
        "_with(totals[3:], np.tile(index, 2), sign * np.concatenate([square, lost])),",
        "_with(totals[3:], np.tile(index, 2), np.concatenate([square, lost])),",
        network=RANDOM,
    ),
    Mutant(
        "a filtered function lets tuples leave that never entered",
        "processors/boxes/states.py",
        "if self.condition is not None:",
        "if self.condition is not None and sign > 0:",
        network=RANDOM,
    ),
    Mutant(
        "an expression around calls takes them from right to left",
        "processors/boxes/states.py",
        "for number, column in enumerate(emitted)}",
        "for number, column in enumerate(reversed(emitted))}",
        network=RANDOM,
    ),
    Mutant(
        "a user's function is believed where it says that it is not exact",
        "processors/boxes/states.py",
        "return self.function.exact(self.parts(states))",
        "return pl.repeat(True, states.height, dtype=pl.Boolean, eager=True)",
        network=RANDOM,
    ),
]
