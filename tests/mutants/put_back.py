"""Bugs in putting back a watermark that ran ahead."""

from tests.mutants.mutant import POISONED, Mutant

PUT_BACK = [
    Mutant(
        "a watermark falls without its mark",
        "processors/ingest/ingest_task.py",
        "lowered=self.report.lowered if put_back is None else epoch,",
        "lowered=self.report.lowered if put_back is None else self.report.lowered,",
        network=POISONED,
    ),
    Mutant(
        "a reader passes the epoch in which its watermark falls",
        "processors/reports/frontiers.py",
        "if task not in self._reads or self._has_unprocessed(task) or self.falls(task):",
        "if task not in self._reads or self._has_unprocessed(task):",
        network=POISONED,
    ),
    Mutant(
        "a task is rebuilt before its watermark falls",
        "processors/tasks/scope_task.py",
        "first = max(self.report.done + 1, self._rebuilt_above(), lowered, self.restored_from)",
        "first = max(self.report.done + 1, self._rebuilt_above(), min(lowered, 0))",
        network=POISONED,
    ),
    Mutant(
        "a watermark that was put back is forgotten at a restart",
        "processors/ingest/ingest_task.py",
        "            watermark=self.newest_ms,",
        "            watermark=max(self.newest_ms, self.report.watermark),",
        network=POISONED,
    ),
    Mutant(
        "a watermark that ran ahead lets tuples expire",
        "processors/reports/progress_view.py",
        "return min(pair[1], report.trusted_ms)",
        "return max(pair[1], report.trusted_ms)",
        network=POISONED,
    ),
]
