"""Bugs in boxes that depend on the order of tuples."""

from tests.mutants.mutant import WITH_ROWS, Mutant

ORDERED = [
    Mutant(
        "one known tuple before a revision is enough, however many are looked at",
        "processors/boxes/ordered.py",
        "known.cum_sum().over(_GROUP) >= self.reach",
        "known.cum_sum().over(_GROUP) > 0",
        network=WITH_ROWS,
    ),
    Mutant(
        "what leaves a group that is asked for was never there",
        "processors/boxes/ordered.py",
        "self._replaced(whole, entering_rows, left_rows)",
        "self._replaced(whole, entering_rows, left_rows.clear())",
        network=WITH_ROWS,
    ),
    Mutant(
        "tuples that happen together are in any order",
        "processors/boxes/ordered.py",
        "return [self.input.event_time, *self.input.identity]",
        "return [self.input.event_time]",
        network=WITH_ROWS,
    ),
    Mutant(
        "tuples are numbered from where memory begins",
        "processors/boxes/counting.py",
        "number = self.window.rows, ordered.first + ordered.position",
        "number = self.window.rows, ordered.position",
        network=WITH_ROWS,
    ),
    Mutant(
        "a window that counts reaches into the group before",
        "processors/boxes/counting.py",
        "first = np.maximum(end - size, ordered.start[has_predecessors])",
        "first = np.maximum(end - size, 0)",
        network=WITH_ROWS,
    ),
    Mutant(
        "a window that counts is told before its last tuple is passed",
        "processors/boxes/counting.py",
        "(times[end - 1] < wm)",
        "(times[end - 1] <= wm)",
        network=WITH_ROWS,
    ),
    Mutant(
        "a combination of values happened when its last copy did",
        "processors/compile/aggregate.py",
        "min(`{time}`)",
        "max(`{time}`)",
        network=WITH_ROWS,
    ),
    Mutant(
        "equal tuples of a distinct box stay in several partitions",
        "processors/compile/aggregate.py",
        "is_together = set(above.partition_by) <= set(by)",
        "is_together = bool(set(above.partition_by) & set(by))",
        network=WITH_ROWS,
    ),
    Mutant(
        "the first tuples of a group, with none before them, are left out",
        "processors/boxes/lag.py",
        "is_determined = has_earlier | pl.Series(ordered.first == 0)",
        "is_determined = has_earlier",
        network=WITH_ROWS,
    ),
]
