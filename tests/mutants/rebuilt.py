"""Bugs in what is noticed, written again and rebuilt after a loss of records or a long outage."""

from tests.mutants.mutant import AWAY, LOSING, Mutant

REBUILT = [
    Mutant(
        "a reader goes on as if its input had lost nothing",
        "processors/tasks/scope_task.py",
        "if self.report.done < self._rebuilt_above():",
        "if self._rebuilt_above() < self.report.done < 0:",
        network=LOSING,
    ),
    Mutant(
        "lost records are not written again",
        "processors/ingest/held_tuples.py",
        "lost[partition] = difference(self.arc, there, held.filter(places == partition))",
        "lost[partition] = difference(self.arc, there, there)",
        network=LOSING,
    ),
    Mutant(
        "a report that claims lost records counts as forged",
        "processors/tasks/task.py",
        "if claims and note.is_of(report):",
        "if not claims and note.is_of(report):",
        network=LOSING,
    ),
    Mutant(
        "a task is rebuilt as of an epoch whose versions are compacted away",
        "processors/tasks/scope_task.py",
        "return epoch if epoch >= max(first, content.floor) else None",
        "return epoch if epoch >= first else None",
        network=AWAY,
    ),
    Mutant(
        "an exchange is recomputed with the tuples of all partitions",
        "processors/tasks/contents.py",
        "return tuples.filter(places == self.partition)",
        "return tuples.filter(places >= 0)",
        network=AWAY,
    ),
    Mutant(
        "who reads an arc without history is not rebuilt after its writer",
        "processors/tasks/scope_task.py",
        "if self.has_lost_records or passing:",
        "if self.has_lost_records:",
        network=AWAY,
    ),
    Mutant(
        "readers do not wait for what a transaction has hidden",
        "processors/tasks/lost_records.py",
        "return replace(report, ends={**report.ends, **left}, rebuilt=PENDING)",
        "return replace(report, ends={}, rebuilt=PENDING)",
        tests="tests/processors/tasks/test_lost_records.py",
    ),
    Mutant(
        "a transaction whose end is lost hides all that follows, for ever",
        "processors/tasks/task.py",
        "self._produce_ends(hidden)",
        "self._produce_ends([])",
        network=LOSING,
    ),
    Mutant(
        "a task ends with an error if records are lost while it looks for its last one",
        "processors/tasks/lost_records.py",
        "wanted.pop(error.source, None)",
        "del wanted[error.source]",
        tests="tests/laws/test_lost_records.py",
    ),
    Mutant(
        "a running task leaves its transaction open whose end is lost",
        "processors/tasks/task.py",
        "self._produce_ends([loss.place for loss in late if loss.place != self.view.source])",
        "self._produce_ends([])",
        tests="tests/processors/tasks/test_lost_records.py",
    ),
    Mutant(
        "a running task tries again and again to end a transaction of another",
        "processors/tasks/lost_records.py",
        "new, self._told = late - self._told, self._told | late",
        "new, self._told = late, self._told | late",
        tests="tests/processors/tasks/test_lost_records.py",
    ),
    Mutant(
        "a lost report is not missed",
        "processors/wire/report.py",
        "return self.deployment == deployment and is_later",
        "return self.deployment != deployment and is_later",
        tests="tests/processors/tasks/test_lost_records.py",
    ),
    Mutant(
        "a task that was away sends its results to a sink again",
        "processors/tasks/sink_content.py",
        "parts.append(revisions.filter(own))",
        "parts.append(revisions.filter(own).clear())",
        network=AWAY,
    ),
    Mutant(
        "results without history do not reach their sink after an outage",
        "processors/tasks/rebuild.py",
        "(scope) if is_readable(plan, arc)]",
        "(scope) if not is_readable(plan, arc)]",
        network=AWAY,
    ),
]
