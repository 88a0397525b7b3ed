"""Bugs in putting back a watermark that ran ahead."""

from tests.mutants.mutant import POISONED, Mutant

_LAW = "test_a_watermark_is_put_back_where_jobs_on_spark_ingest_and_read_it"
ON_SPARK = f"tests/laws/test_put_back.py::{_LAW}"
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
    Mutant(
        "a job goes on from its states where its watermark falls",
        "spark_jobs/epochs.py",
        "            if self.view.frontiers.falls(task):",
        "            if False:",
        tests=ON_SPARK,
    ),
    Mutant(
        "a job that makes its states anew keeps its watermark",
        "spark_jobs/epochs.py",
        "wm = line.following(done, wm, epoch=epoch)",
        "wm = max(wm, line.at(epoch))",
        tests=ON_SPARK,
    ),
    Mutant(
        "a job makes its states anew before its watermark falls",
        "spark_jobs/epochs.py",
        "if epoch < self.view.line(self.job.scope.name).lowered:",
        "if epoch < 0:",
        tests=ON_SPARK,
    ),
    Mutant(
        "a job that ingests keeps a watermark that is put back",
        "spark_jobs/reports.py",
        "old = replace(old, watermark=lowered_ms, believed=None, lowered=batch.epoch)",
        "old = replace(old, believed=None, lowered=batch.epoch)",
        tests=ON_SPARK,
    ),
    Mutant(
        "records of the batch in which a watermark is put back are judged by the wrong one",
        "spark_jobs/source_epochs.py",
        "known |= {self.job.places[partition]: time_ms for partition, time_ms in lowered}",
        "known |= {}",
        tests=ON_SPARK,
    ),
    Mutant(
        "a job that ingests does not mark where a watermark falls",
        "spark_jobs/reports.py",
        "            lowered=old.lowered,",
        "            lowered=self.report.lowered,",
        tests=ON_SPARK,
    ),
]
