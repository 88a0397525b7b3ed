"""Bugs in jobs on Spark: bounds, slabs, shares, writers, reports."""

from tests.mutants.mutant import ON_SPARK, Mutant

JOBS = [
    Mutant(
        "a batch begins where the one before ended",
        "spark_jobs/epochs.py",
        "starts = {p: self.resume(p) for p in complete}",
        "starts = now.ends",
        network=ON_SPARK,
    ),
    Mutant(
        "what was reported is written again",
        "spark_jobs/stages.py",
        "if batch.epoch > job.done[partition]",
        "if batch.epoch > -1",
        network=ON_SPARK,
    ),
    Mutant(
        "a tuple comes to the slab of its own time only",
        "spark_jobs/job.py",
        "first = (times - self.window.extent_ms + 1) // self.length_ms",
        "first = times // self.length_ms",
        network=ON_SPARK,
    ),
    Mutant(
        "a slab has the windows of its neighbours that its panes are in",
        "spark_jobs/job.py",
        "return self._inside(*super().of_panes(starts, is_first))",
        "return super().of_panes(starts, is_first)",
        tests="tests/laws/test_failing.py",
    ),
    Mutant(
        "copies that a task of a job wrote twice count twice",
        "processors/arcs/arc_topic.py",
        "has_copies = covered.height < pending.height or self._repeats",
        "has_copies = covered.height < pending.height",
        network=ON_SPARK,
    ),
    Mutant(
        "a rebuild spares what the watermark has passed",
        "spark_jobs/share.py",
        "emitted, computed, settled=batch.settled_before)",
        "emitted, computed, settled=batch.wm)",
        network=ON_SPARK,
    ),
    Mutant(
        "a job's progress is that of one partition of its input",
        "processors/plan/placement.py",
        "range(self.partitions[arc]) if reader.on_spark else (partition,)",
        "range(partition, partition + 1)",
        network=ON_SPARK,
    ),
    Mutant(
        "states of sliding windows end with their slab",
        "spark_jobs/share.py",
        "return states.filter((start > from_ms - self.job.box.window.extent_ms) & (start < to_ms))",
        "return states.filter((start >= from_ms) & (start < to_ms))",
        network=ON_SPARK,
    ),
    Mutant(
        "windows close only where tuples come",
        "spark_jobs/epochs.py",
        "closing = slabs.closing(start.watermark, end.watermark, held)",
        "closing = range(0)",
        network=ON_SPARK,
    ),
    Mutant(
        "states are made anew beyond what half of the tasks have reported",
        "spark_jobs/epochs.py",
        "if now.epoch == NOTHING and len(reported) > 1:",
        "if now.epoch == NOTHING and len(reported) > 9:",
        network=ON_SPARK,
    ),
]
