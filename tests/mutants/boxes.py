"""Bugs in boxes, exchanges and windows."""

from tests.mutants.mutant import RANDOM, Mutant

BOXES = [
    Mutant(
        "a filter passes what its predicate knows nothing of",
        "processors/boxes/where.py",
        "passed = passed.fill_null(False)",
        "passed = passed.fill_null(True)",
        network=RANDOM,
    ),
    Mutant(
        "a tuple that a map gives no event time any more stays",
        "processors/boxes/map.py",
        "frames.between(before, had & left, after, has & made)",
        "frames.between(before, had & made, after, has & made)",
        network=RANDOM,
    ),
    Mutant(
        "an output of a route leaves out what an earlier one knows nothing of",
        "processors/boxes/where.py",
        "left = ~taken.fill_null(False)",
        "left = ~taken.fill_null(True)",
        network=RANDOM,
    ),
    Mutant(
        "a union deletes and inserts what left one input for another",
        "processors/boxes/union.py",
        "net = frames.net(pl.concat(found), self.arc.identity, list(self.arc.fields))",
        "net = pl.concat(found)",
        network=RANDOM,
    ),
    Mutant(
        "what comes through an exchange is not netted",
        "processors/tasks/scope_run.py",
        "return frames.net(plain, arc.identity, list(arc.fields))",
        "return plain",
        network=RANDOM,
    ),
    Mutant(
        "a replay through an exchange asks one partition",
        "processors/compile/modes.py",
        "everywhere |= arc.exchange",
        "everywhere |= False",
        network=RANDOM,
    ),
    Mutant(
        "what may be null lies in another partition",
        "processors/arcs/partitioner.py",
        "return list(map(_WITHOUT_BRANCH, encoded)) if self.arc.fields[name].optional else encoded",
        "return list(map(_WITHOUT_BRANCH, encoded)) if not encoded else encoded",
        network=RANDOM,
    ),
    Mutant(
        "a result that a filter hides is taken for none",
        "processors/boxes/aggregate.py",
        "hidden |= ~where.passes(keys)",
        "hidden &= ~where.passes(keys)",
        network=RANDOM,
    ),
    Mutant(
        "windows start at multiples of their slide, whatever their origin",
        "processors/windows/time_windows.py",
        "return times - (times - self.origin_ms) % self.slide_ms",
        "return times - times % self.slide_ms",
        network=RANDOM,
    ),
    Mutant(
        "an hour that clocks show twice goes into windows twice",
        "processors/windows/time_windows.py",
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
]
