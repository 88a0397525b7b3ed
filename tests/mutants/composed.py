"""Bugs in networks that read arcs of other networks."""

from tests.mutants.mutant import COMPOSED, Mutant

BOUND_INPUT, BOUND_TASK = "processors/arcs/bound.py", "processors/ingest/bound_task.py"

COMPOSITION = [
    Mutant(
        "upstream epochs that are one here are passed on one by one",
        BOUND_INPUT,
        'elif revisions["epoch"].n_unique() > 1:',
        'elif revisions["epoch"].n_unique() > 10**9:',
        network=COMPOSED,
    ),
    Mutant(
        "an epoch counts as read before its upstream epochs are",
        BOUND_INPUT,
        "epoch = min(epoch, pairs[behind][0] - 1)",
        "epoch = min(epoch, pairs[behind][0])",
        network=COMPOSED,
    ),
    Mutant(
        "what a topic holds is taken as its history",
        BOUND_INPUT,
        "if self.done < 0 and epoch == own.min():",
        "if self.done < -1 and epoch == own.min():",
        network=COMPOSED,
    ),
    Mutant(
        "a copy that was read from the topic again answers for epochs before",
        BOUND_INPUT,
        "self._floor = self._pairs[0][0]",
        "self._floor = NOTHING_YET",
        network=COMPOSED,
    ),
    Mutant(
        "of the partitions that have changed only the first is told",
        BOUND_TASK,
        "for p in moment.changed}",
        "for p in moment.changed[:1]}",
        network=COMPOSED,
    ),
    Mutant(
        "a task gets ahead of the one whose pairs it takes over",
        BOUND_TASK,
        "done = min(self.view.newest_epoch(), leader.done)",
        "done = self.view.newest_epoch()",
        network=COMPOSED,
    ),
    Mutant(
        "pairs of epochs are dropped before readers have passed them",
        BOUND_TASK,
        "passed = self._passed()",
        "passed = self.report.done",
        network=COMPOSED,
    ),
    Mutant(
        "the watermark upstream is taken as it is now, not as of the epoch",
        BOUND_TASK,
        "self._watermark(source, line.at(upto) if",
        "self._watermark(source, line.at(2**61) if",
        network=COMPOSED,
    ),
    Mutant(
        "a bound source has no lateness",
        BOUND_TASK,
        "return max(upstream - source.lateness_ms, NEVER)",
        "return max(upstream, NEVER)",
        network=COMPOSED,
    ),
    Mutant(
        "what was lost upstream is not told downstream",
        BOUND_TASK,
        "rebuilt=known and rebuilt <= upto and",
        "rebuilt=known and rebuilt < 0 and",
        network=COMPOSED,
    ),
    Mutant(
        "a watermark that was put back upstream is not told downstream",
        BOUND_TASK,
        "lowered=known and last < line.lowered <= upto",
        "lowered=known and last < line.lowered < 0",
        network=COMPOSED,
    ),
    Mutant(
        "the results of a window belong to the one after it",
        "processors/compile/sources_and_sinks.py",
        "event_time_shift_ms=usual_shift_ms(at) if",
        "event_time_shift_ms=0 if",
        tests="tests/errata/deploy/test_bound_sources.py",
    ),
    Mutant(
        "a switch leaves out pairs that were told before it",
        "errata/run/switch.py",
        "while actor.pairs_left():",
        "while False and actor.pairs_left():",
        tests="tests/errata/run/test_bound_switch.py",
    ),
]
