"""Bugs in ``significance=``: what is kept back, and how far results may be off."""

from tests.mutants.mutant import Mutant

BOX, TEST = "processors/boxes/significance.py", "tests/processors/boxes/test_significance.py"
BOUNDS = "tests/processors/boxes/test_bounds.py"

KEPT_BACK = [
    Mutant(
        "a threshold forgets what it kept back",
        BOX,
        "        if live.kept_back:\n",
        "        if live.kept_back < 0:\n",
        network="close_enough",
    ),
    Mutant(
        "what is kept back is not known after a restart",
        BOX,
        'kept_back=counts.get("inexact", 0) - counts.get("settled", 0))',
        "kept_back=0 * counts.get('inexact', 0))",
        network="close_enough",
    ),
    Mutant(
        "small revisions are compared with the exact result before, and add up",
        BOX,
        "& self._is_near(emitted, after) &",
        "& self._is_near(before, after) &",
        tests=TEST,
    ),
    Mutant(
        "stored results are fetched as they were emitted",
        BOX,
        "return pl.concat([others, self._as(EXACT, kept, names=stored.columns)])",
        "return pl.concat([others, self._as(EMITTED, kept, names=stored.columns)])",
        network="close_enough",
    ),
    Mutant(
        "a replay goes through a box as if it kept nothing back",
        BOX,
        "others = exact.join(kept, on=identity,",
        "others = exact.join(kept.clear(), on=identity,",
        tests=TEST,
    ),
    Mutant(
        "an event time that changes is kept back",
        BOX,
        "shown = {*self.input.visible, self.arc.event_time}",
        "shown = {*self.input.visible} - {self.arc.event_time}",
        tests=TEST,
    ),
    Mutant(
        "what no revision touches is not settled",
        BOX,
        "revised = pl.concat([revised, _deletes(others)])",
        "revised = pl.concat([revised, _deletes(others.clear())])",
        tests=TEST,
    ),
    Mutant(
        "a settled result is emitted as before",
        BOX,
        "self._as(EXACT, kept, side=frames.BEFORE),",
        "self._as(EMITTED, kept, side=frames.BEFORE),",
        tests=TEST,
    ),
    Mutant(
        "an idle network stamps no epoch for a task that has to settle",
        "processors/ingest/stamping_task.py",
        "view.of(each).rebuilt == PENDING or view.unsettled(scope, each)",
        "view.of(each).rebuilt == PENDING",
        tests=TEST,
    ),
    Mutant(
        "a filter by an inexact field has bounds below it",
        "processors/boxes/where.py",
        "return self._unbounded if known.reads(self.columns) else known",
        "return known",
        tests=BOUNDS,
    ),
    Mutant(
        "a chain of thresholds is only as far off as its last one",
        "processors/boxes/bounds.py",
        "share = self.share + other.share + self.share * other.share",
        "share = other.share",
        tests=BOUNDS,
    ),
    Mutant(
        "a sum is no further off than each of its values",
        "processors/boxes/states.py",
        "if distance == AVERAGES or (distance == SUMS and not bound.absolute):",
        "if distance in (AVERAGES, SUMS):",
        tests=BOUNDS,
    ),
]
