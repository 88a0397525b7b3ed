"""Bugs in what is forgotten by its event time."""

from tests.mutants.mutant import IDLE, TRIMMED, Mutant

EXPIRED = [
    Mutant(
        "tuples expire before the windows that they are in",
        "processors/plan/compiled.py",
        "reach_ms = max(self.kept_ms[arc], *beside) + self.radius_ms(arc)",
        "reach_ms = max(self.kept_ms[arc], *beside) + 0 * self.radius_ms(arc)",
        tests="tests/processors/plan/test_plan.py",
    ),
    Mutant(
        "records after the end of a partition count before they came",
        "processors/reports/progress_view.py",
        "return report.trusted_ms if is_current or report.done <= upto else NEVER",
        "return report.trusted_ms if report.done >= -1 else NEVER",
        network=IDLE,
    ),
    Mutant(
        "a sweeper drops what a slower task still requests",
        "sweepers/sweeper.py",
        "expired_before(self.shared, self.arc.name, upto=asked, now_ms=now)",
        "expired_before(self.shared, self.arc.name, upto=2**60, now_ms=now)",
    ),
    Mutant(
        "records are deleted one window too early",
        "processors/tasks/trimming.py",
        "(mark := kept[0]).newest_ms < expired_ms and",
        "(mark := kept[0]).newest_ms < expired_ms + 60 and",
        network=TRIMMED,
    ),
]
