"""Bugs in the handling of tuples for which users' functions raise."""

from tests.mutants.mutant import FAILING, WITH_LOOPS, Mutant

FAILURES = [
    Mutant(
        "a tuple that an aggregate never took leaves its windows",
        "processors/boxes/aggregate.py",
        "refused = self._refused(tuples)\n        keys, rows",
        "refused = {r: w for r, w in self._refused(tuples).items() if r >= leaving.height}\n"
        "        keys, rows",
        network=FAILING,
    ),
    Mutant(
        "a window of which no result is stored is taken to be empty",
        "processors/boxes/aggregate.py",
        "if self.leaves_out:",
        "if not self.leaves_out:",
        network=FAILING,
    ),
    Mutant(
        "sliding windows of which no result is stored are taken not to be there",
        "processors/boxes/sliding.py",
        "if self.leaves_out or any(",
        "if any(",
        network=FAILING,
    ),
    Mutant(
        "what a map has left out is deleted when it leaves",
        "processors/boxes/map.py",
        "frames.between(before, existed & kept_before, after, exists & kept_after)",
        "frames.between(before, existed, after, exists & kept_after)",
        network=FAILING,
    ),
    Mutant(
        "an output of a route takes what an earlier one raises for",
        "processors/boxes/where.py",
        "rest = ~taken.fill_null(False) & without_failures(failed_before, tuples.height)",
        "rest = ~taken.fill_null(False)",
        network=FAILING,
    ),
    Mutant(
        "of several epochs that are committed together the first one's dead letters are sent",
        "processors/tasks/dead_letters.py",
        "for result in results\n",
        "for result in results[:1]\n",
        network=FAILING,
    ),
    Mutant(
        "a result over rows that is left out is refused whenever its group is looked at",
        "processors/boxes/ordered.py",
        'new = failed_now.join(failed_before, on=read_fields, how="anti", nulls_equal=True)',
        'new = failed_now.join(failed_before, on=read_fields, nulls_equal=True, how="left")',
        network=FAILING,
    ),
    Mutant(
        "nothing is said of a result over rows that is left out",
        "processors/boxes/ordered.py",
        "if failed_now.height:",
        "if failed_now.is_empty():",
        network=FAILING,
    ),
    Mutant(
        "what a function in a loop's body raises for is told in each epoch",
        "processors/boxes/iterate.py",
        "return replace(self, tuples=remaining)",
        "return replace(self, tuples=self.tuples)",
        network=WITH_LOOPS,
    ),
    Mutant(
        "a function in a loop's body that raises is not told of",
        "processors/boxes/iterate.py",
        "refusals += [(box.arc.name, refusal) for refusal in refused]",
        "refusals += [(box.arc.name, refusal) for refusal in refused[:0]]",
        network=WITH_LOOPS,
    ),
    Mutant(
        "a job tells again of what it has told when its states are made anew",
        "spark_jobs/blocks.py",
        'pl.col("epoch") > job.done[partition]',
        'pl.col("epoch") > -1',
        network=FAILING,
    ),
    Mutant(
        "a job's dead letters are those of its first life",
        "spark_jobs/routing.py",
        "attempt=job.attempts[partition]",
        "attempt=job.attempts[partition] // job.attempts[partition]",
        network=FAILING,
    ),
    Mutant(
        "a tuple that a job's aggregate does not take is told by each slab that it is in",
        "spark_jobs/routing.py",
        "entering, refusals = box.accepted(frames.entering(revisions, names))",
        "entering, refusals = frames.entering(revisions, names), list[Refused]()",
        network=FAILING,
    ),
    Mutant(
        "a job sends no dead letters",
        "spark_jobs/stages.py",
        "for block in dead_letters:",
        "for block in dead_letters[1:]:",
        network=FAILING,
    ),
    Mutant(
        "what a loop does not settle is told in each epoch",
        "processors/boxes/iterate.py",
        "new_unsettled = unsettled.new_since(unsettled_before)",
        "new_unsettled = unsettled.tuples",
        network=WITH_LOOPS,
    ),
]
