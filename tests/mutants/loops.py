"""Bugs in lookups and loops."""

from tests.mutants.mutant import WITH_LOOPS, Mutant

LOOPS = [
    Mutant(
        "a loop stops one round early",
        "processors/boxes/iterate.py",
        "rounds_left = self.rounds + 1",
        "rounds_left = max(1, self.rounds)",
        network=WITH_LOOPS,
    ),
    Mutant(
        "what entered a loop before an epoch is taken to be what enters after it",
        "processors/boxes/iterate.py",
        "previous = {n: undo_revisions(self.entering[n], current[n], changes[n]) for n in current}",
        "previous = dict(current)",
        network=WITH_LOOPS,
    ),
    Mutant(
        "what a round leaves as it is goes lost in the next one",
        "processors/boxes/iterate.py",
        "                settled.append(unchanged)",
        "                settled = [unchanged]",
        network=WITH_LOOPS,
    ),
    Mutant(
        "tuples that never settle stay as they are in the last round",
        "processors/boxes/iterate.py",
        'unchanged = current.join(changed, on=identity, how="anti", nulls_equal=True)',
        "unchanged = current",
        network=WITH_LOOPS,
    ),
    Mutant(
        "a tuple that looks up in what goes round is taken to be alone",
        "processors/boxes/lookup.py",
        "return left in linear and right not in changing",
        "return left in linear and bool(right)",
        network=WITH_LOOPS,
    ),
    Mutant(
        "only the touched tuples of the start go round, though others are touched too",
        "processors/boxes/iterate.py",
        "if self.body.is_linear and not any(changes[name].height for name in self.body.enters):",
        "if self.body.is_linear:",
        network=WITH_LOOPS,
    ),
    Mutant(
        "what is looked up is not replayed if it happened later",
        "processors/compile/modes.py",
        "ahead |= producer.looks_ahead",
        "ahead &= producer.looks_ahead",
        network=WITH_LOOPS,
    ),
    Mutant(
        "both sides of a lookup are asked for by the fields of the left one",
        "processors/boxes/base.py",
        "return [(one.arc, dict(zip(names, one.by, strict=True))) for one in self.history_inputs]",
        "return [(one.arc, dict(zip(names, names, strict=True))) for one in self.history_inputs]",
        network=WITH_LOOPS,
    ),
    Mutant(
        "a lookup that replaces what its arc is partitioned by writes it where it is",
        "processors/compile/join.py",
        "if set(expressions) & set(arc.partition_by) else arc",
        "if set(expressions) < set(arc.partition_by) else arc",
        network=WITH_LOOPS,
    ),
]
