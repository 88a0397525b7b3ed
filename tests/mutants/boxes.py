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
        "frames.between(before, existed & kept_before, after, exists & kept_after)",
        "frames.between(before, existed & kept_after, after, exists & kept_after)",
        network=RANDOM,
    ),
    Mutant(
        "an output of a route leaves out what an earlier one knows nothing of",
        "processors/boxes/where.py",
        "rest = ~taken.fill_null(False)",
        "rest = ~taken.fill_null(True)",
        network=RANDOM,
    ),
    Mutant(
        "a union deletes and inserts what left one input for another",
        "processors/boxes/union.py",
        "net = frames.net(pl.concat(changed), self.arc.identity, list(self.arc.fields))",
        "net = pl.concat(changed)",
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
        "hidden |= ~filter_box.passes(keys)",
        "hidden &= ~filter_box.passes(keys)",
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
        "times = zone_clocks.reached(times)",
        "times = zone_clocks.walls(times)",
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
